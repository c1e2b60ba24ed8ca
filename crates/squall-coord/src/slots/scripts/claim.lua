-- Claims a slot, or queues the claim.
-- Args: as the prelude, 3 session, 4 JSON (kind, version or '*', key, server, dial: in how many ms the
--   worker must list the session), 5 wait in ms (0: do not queue), 6 most waiting claims, 7 most
--   sessions and waiting claims of the key, 8 most waiting claims of the key; -1 for no limit of the key.
-- Reply: {'granted', worker, version, endpoint, secret}, {'waiting', ahead, last call},
--   {'queue_full'}, {'key_full'}, {'key_queue_full'}, {'no_version', version, …}, or {'not_member'}.
-- Invariant: a repeated claim counts once; a claim that no worker could serve does not wait, and leaves the
--   queue when it is repeated.
local id, claim, wait = ARGV[3], cjson.decode(ARGV[4]), tonumber(ARGV[5])
local queue_limit, key_limit, key_queue_limit = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
if not alive('servers', claim.server) then return {'not_member'} end

local function granted(worker, version, offer) return {'granted', worker, version, offer.endpoint, offer.secret} end

local session = record('sessions', id)
if session then return granted(session.worker, session.version, record('offers', session.worker)) end
local counts = key('versions:' .. claim.kind)
local function workers_of_version() return tonumber(redis.call('HGET', counts, claim.version) or '0') end
local queue = key('queue:' .. claim.kind .. ':' .. claim.version)
local ranked = key('rank:' .. claim.kind .. ':' .. claim.version)
-- The worker that is nearest to its lifetime limit, and its score.
local nearest = redis.call('ZRANGE', ranked, 0, 0, 'WITHSCORES')
-- While a worker has a free slot, no claim that fits it waits, and its version is there.
if #nearest == 0 then
  if workers_of_version() == 0 and redis.call('HEXISTS', counts, '*') == 1 then
    remove_ticket(id)
    local answer = {'no_version'}
    for _, version in ipairs(redis.call('HKEYS', counts)) do
      if version ~= '*' then answer[#answer + 1] = version end
    end
    return answer
  end
  local rank = redis.call('ZRANK', queue, id)
  if rank then return {'waiting', whole(rank), whole(last_call())} end
end
local function of_key(hash) return tonumber(redis.call('HGET', key(hash), claim.key) or '0') end
if key_limit >= 0 and of_key('keys') >= key_limit then return {'key_full'} end

-- The worker that is nearest to its lifetime limit but not within the margin, so that workers reach
-- their limits one after another.
local function choose()
  local first = nearest[1]
  if not first then return nil end
  local offer = record('offers', first)
  if offer.max_lifetime == 0 then return first, offer end
  local outside = (math.max(1, math.floor(offer.max_lifetime / workers_of_version())) + 1) * 4096
  if tonumber(nearest[2]) >= outside then return first, offer end
  local chosen = redis.call('ZRANGEBYSCORE', ranked, outside, '+inf', 'LIMIT', 0, 1)[1]
  if not chosen then return first, offer end
  return chosen, record('offers', chosen)
end

local worker, offer = choose()
if worker then
  grant(id, claim, worker, offer)
  return granted(worker, claim.version == '*' and offer.versions[1] or claim.version, offer)
end
if wait == 0 or redis.call('HLEN', key('tickets')) >= queue_limit then return {'queue_full'} end
if key_queue_limit >= 0 and of_key('keys:waiting') >= key_queue_limit then return {'key_queue_full'} end
local ahead = redis.call('ZCARD', queue)
claim.since = now
redis.call('HSET', key('tickets'), id, cjson.encode(claim))
redis.call('SADD', key('tickets:by:' .. claim.server), id)
expire_at('waiting', now + wait, id)
redis.call('ZADD', queue, redis.call('INCR', key('arrivals')), id)
count('keys', claim.key, 1)
count('keys:waiting', claim.key, 1)
return {'waiting', whole(ahead), whole(last_call())}
