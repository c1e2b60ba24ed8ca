-- Counts one pool.
-- Keys and args: as the prelude. Answer: total, available, held, waiting.
-- Invariant: the four belong to the same instant.
return {
  tonumber(redis.call('HGET', KEYS[1], ARGV[2]) or '0'), redis.call('SCARD', KEYS[2]), redis.call('HLEN', KEYS[3]),
  redis.call('ZCARD', KEYS[5]),
}
