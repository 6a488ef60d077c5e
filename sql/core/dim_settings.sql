-- One row per setting of the plan and version of the product.
-- grain: name
select name, value_text, unit, provenance, source_text
from raw_settings
order by name
