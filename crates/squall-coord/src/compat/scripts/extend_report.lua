-- Adds fields to the report of a worker that does not write them itself.
-- Keys: 1 status (hash). Args: field and value in turn. Reply: 1, or 0 without a report.
-- Invariant: a report that is gone is not created.
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
return 1
