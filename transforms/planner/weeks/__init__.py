"""Week against week: what moved KV·time, GPUs and first tokens; growth; forecasts beside what came."""
