-- Deployment that serves a model of the logs; '(none)' where none does, NULL for a model that no log names
-- example: select deployment_of('llama-3.1-8b')
-- noqa: disable=RF03,AL05
create or replace macro deployment_of(model) as (
    select max(served.served_by_id)
    from dist_served_models as served (week, served_by_id, served_model)
    where served.served_model = coalesce(model, '(none)')
)
