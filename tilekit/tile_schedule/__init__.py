"""TileScheduler components: which output tile a CTA computes next."""
