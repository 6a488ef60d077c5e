-- One row per deployment that a fact or a KV group names and the fleet does not have: none may exist.
-- grain: relation, deployment_id
with named as (
    select 'dist_served_models' as relation, deployment_id from dist_served_models
    union
    select 'fct_attempts' as relation, deployment_id from fct_attempts
    union
    select 'dim_kv_groups' as relation, deployment_id from dim_kv_groups
)

select named.relation, named.deployment_id
from named
left join dim_deployments on named.deployment_id = dim_deployments.deployment_id
where dim_deployments.deployment_id is null and named.deployment_id <> '(none)'
