-- Removes a worker from the set of reporting workers.
-- Keys: 1 workers (set), 2 status (hash). Args: 1 worker, 2 1 to remove it even if its report has
--   not expired. Reply: 1.
-- Invariant: a worker that has reported again meanwhile stays.
if ARGV[2] == '1' then redis.call('DEL', KEYS[2]) end
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SREM', KEYS[1], ARGV[1]) end
return 1
