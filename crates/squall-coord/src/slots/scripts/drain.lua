-- Asks a worker to take no more sessions and to leave when it has none.
-- Args: as the prelude, 3 worker. Reply: 1 if there is such a worker.
-- Invariant: no claim is granted a slot of this worker after this script.
local offer = offer_of(ARGV[3])
if not offer then return 0 end
offer.drain_wish = true
write_worker(ARGV[3], offer)
local view = key('worker:' .. ARGV[3])
if redis.call('EXISTS', view) == 1 then redis.call('HSET', view, 'status', status(offer)) end
return 1
