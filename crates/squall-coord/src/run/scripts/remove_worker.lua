-- Removes a worker from those who report.
-- Keys: 1 workers (set), 2 status (hash). Args: 1 worker, 2 1 to remove it even if its status lives. Answer: 1.
-- Invariant: a worker that has come back meanwhile stays.
if ARGV[2] == '1' then redis.call('DEL', KEYS[2]) end
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SREM', KEYS[1], ARGV[1]) end
return 1
