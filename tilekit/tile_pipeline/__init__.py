"""TilePipeline components: when a stage may be filled or read. They never move data and never compute."""
