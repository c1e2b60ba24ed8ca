-- Reads the whole store at one instant.
-- Keys and args: as the prelude. Reply: time in ms, revision, members record, live (id, deadline,
--   …), held (field, value, …).
-- Invariant: all parts belong to the same instant.
return {
  whole(now), revision(), redis.call('GET', KEYS[1]) or '{}',
  redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES'), redis.call('HGETALL', KEYS[3]),
}
