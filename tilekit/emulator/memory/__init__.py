"""Address spaces, accesses, and copies in bulk: tensor maps, boxes, swizzles."""
