-- Least saving of a policy for tool waits that is worth a change, in GPUs held all week
-- unit: GPUs
-- example: select action_least_gpus()
create or replace macro action_least_gpus() as (
    cast(0.1 as double)
)
