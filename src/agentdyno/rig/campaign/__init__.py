"""Many runs of many frameworks, drawn, interleaved and told as one comparison."""
