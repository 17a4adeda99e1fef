"""What a run leaves behind: the resource sampler and the run folder."""
