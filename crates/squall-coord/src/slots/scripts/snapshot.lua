-- Everything at one instant.
-- Reply: {now, offers, lifetimes, workers, sessions, tickets, servers}, as HGETALL and ZRANGE WITHSCORES
--   give them.
return {whole(now), redis.call('HGETALL', key('offers')),
  redis.call('HGETALL', key('cluster:lifetime_connections')), redis.call('ZRANGE', key('workers'), 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', key('tickets')),
  redis.call('ZRANGE', key('servers'), 0, -1)}
