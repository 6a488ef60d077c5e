-- One row per logical request that fct_requests holds more or less than once: none may exist.
-- grain: what
with counts as (
    select
        (select count(*) from fct_requests) as requests,
        (select sum(attempts_requests) from fct_requests) as attempts,
        (select count(*) from stg_requests where is_chat) as rows_read
)

select 'attempts of fct_requests against rows of stg_requests' as what, attempts as found, rows_read as expected
from counts
where attempts <> rows_read
