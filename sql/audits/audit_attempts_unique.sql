-- One row per row of the lake that has the identity of another: none may exist.
-- grain: source, request_id, attempt
with suspects as (
    select hash(source, request_id, attempt) as key
    from stg_requests
    group by key
    having count(*) > 1
)

select source, request_id, attempt, count(*) as found_rows
from stg_requests
where hash(source, request_id, attempt) in (select suspects.key from suspects)
group by source, request_id, attempt
having count(*) > 1
