-- One row per day of the lake that the facts are made of: what a later build compares the lake with.
-- grain: lake_part, arrival_date
select lake_part, arrival_date, content_sha256, lake_rows
from raw_lake_days
order by lake_part, arrival_date
