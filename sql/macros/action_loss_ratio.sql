-- Largest share of the requests that a setting worth doing may refuse, cut or bring out of the objectives beyond today
-- unit: ratio
-- example: select action_loss_ratio()
create or replace macro action_loss_ratio() as (
    cast(0.01 as double)
)
