-- One row per deployment and part of the memory of one GPU: its size, and how far to trust it.
-- grain: deployment_id, name
select deployment_id, name, value_bytes, provenance, source_text
from raw_memory
order by deployment_id, name
