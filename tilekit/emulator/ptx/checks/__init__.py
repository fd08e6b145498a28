"""What goes wrong in PTX alone: uninitialised reads, what ends with a CTA, the tensormap proxy."""
