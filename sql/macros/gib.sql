-- GiB of bytes, or GiB·s of byte-seconds
-- unit: GiB
-- example: select gib(1073741824)
create or replace macro gib(amount) as (
    amount / 1073741824
)
