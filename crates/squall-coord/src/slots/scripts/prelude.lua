-- Expires members, sessions and waiting claims, and defines functions for the scripts of a slot
-- store. The program prepends it to each script.
-- Keys: 1 sessions (hash, id → JSON). The names of the other keys depend on data, so scripts build
--   them from the prefix; on a cluster the prefix has a hash tag, so all keys are on one node.
--   offers (hash, worker → JSON), workers and servers (sorted sets, deadline in ms),
--   rank:<kind>:<version> (sorted set of workers with a free slot; version '*' is any),
--   versions:<kind> (hash, version or '*' → number of workers), sessions:of:<worker> and
--   sessions:by:<server> (sets), pending (sorted set, session → when its worker must have listed it), released
--   (sorted set, session → until when it is not adopted again), lost (sorted set, server whose
--   membership ended → until when that is known), queue:<kind>:<version> (sorted set,
--   session by arrival), tickets (hash, session → JSON), tickets:by:<server> (set), waiting (sorted
--   set, session → deadline in ms), arrivals (string), keys (hash, API key → sessions and waiting
--   claims), keys:waiting (hash, API key → waiting claims), api_keys (hash, name → JSON),
--   revoked_api_keys (sorted set, JSON of a revoked key → until when that is known), calls (stream, claims
--   that were granted a slot while they waited),
--   sweep_at (string, no later than the earliest deadline in ms).
--   Views for other programs: worker:<kind>:<name> (hash), worker:cmd:<kind>:<name> (string, read
--   only), cluster:active_connections and cluster:lifetime_connections (hashes, worker → number).
--   Grants count in the two last, so that they do not rewrite offers; the lifetime in an offer is
--   that of the last offer.
-- Args: 1 prefix, 2 clock skew in ms (0 outside tests).
-- Invariant: a worker never has more granted sessions than slots; no claim waits while a worker that
--   fits it has a free slot; the views agree with the sessions after every script.
local prefix = ARGV[1]
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000) + tonumber(ARGV[2])
local UNLIMITED, RELEASED_FOR, REVOKED_FOR = 1048575, 10000, 86400000
local touched = {}

local function whole(number) return string.format('%.0f', number) end
local function key(name) return prefix .. name end

local function record(hash, id)
  local text = redis.call('HGET', key(hash), id)
  return text and cjson.decode(text)
end

local function offer_of(worker)
  local offer = record('offers', worker)
  if offer then
    offer.lifetime = tonumber(redis.call('HGET', key('cluster:lifetime_connections'), worker) or offer.lifetime)
  end
  return offer
end

-- Scripts sweep only when a deadline may be over, because most calls find nothing. Without the key they
-- sweep.
local sweep_at = tonumber(redis.call('GET', key('sweep_at')) or '0')

local function sweep_from(deadline)
  sweep_at = deadline
  redis.call('SET', key('sweep_at'), whole(deadline), 'PX', 3600000)
end

local function expire_at(set, deadline, id)
  redis.call('ZADD', key(set), whole(deadline), id)
  if deadline < sweep_at then sweep_from(deadline) end
end

local function alive(set, id)
  local deadline = redis.call('ZSCORE', key(set), id)
  return deadline and tonumber(deadline) > now
end

-- Whether a session has been released and may not be adopted again. Offers remove old entries.
local function was_released(id)
  local until_when = redis.call('ZSCORE', key('released'), id)
  return until_when and tonumber(until_when) > now
end

local function count(hash, field, by)
  if redis.call('HINCRBY', key(hash), field, by) <= 0 then redis.call('HDEL', key(hash), field) end
end

local function sessions_left(offer)
  if offer.max_lifetime == 0 then return UNLIMITED end
  return math.max(offer.max_lifetime - offer.lifetime, 0)
end

-- The versions of a worker, and '*' for claims of any version.
local function versions_of(offer)
  local versions = {unpack(offer.versions)}
  versions[#versions + 1] = '*'
  return versions
end

local function status(offer) return (offer.draining or offer.drain_wish) and 'draining' or 'available' end

-- Writes the ranks of a worker. Returns whether it can take a session.
local function rank_worker(worker, offer, active)
  local left = sessions_left(offer)
  local open = status(offer) == 'available' and not offer.unreachable and active < offer.slots and left > 0
  for _, version in ipairs(versions_of(offer)) do
    local rank = key('rank:' .. offer.kind .. ':' .. version)
    if open then redis.call('ZADD', rank, left * 4096 + math.min(active, 4095), worker)
    else redis.call('ZREM', rank, worker) end
  end
  return open
end

-- Writes the views and the ranks of a worker whose sessions have changed.
local function write_counts(worker, offer)
  local active = redis.call('SCARD', key('sessions:of:' .. worker))
  redis.call('HSET', key('cluster:active_connections'), worker, active)
  redis.call('HSET', key('cluster:lifetime_connections'), worker, offer.lifetime)
  return rank_worker(worker, offer, active)
end

local function write_worker(worker, offer)
  redis.call('HSET', key('offers'), worker, cjson.encode(offer))
  return write_counts(worker, offer)
end

local function count_version(offer, by)
  for _, version in ipairs(versions_of(offer)) do count('versions:' .. offer.kind, version, by) end
end

local function unrank(worker, offer)
  for _, version in ipairs(versions_of(offer)) do
    redis.call('ZREM', key('rank:' .. offer.kind .. ':' .. version), worker)
  end
  count_version(offer, -1)
end

local function add_session(id, session)
  redis.call('HSET', KEYS[1], id, cjson.encode(session))
  redis.call('SADD', key('sessions:of:' .. session.worker), id)
  redis.call('SADD', key('sessions:by:' .. session.server), id)
  count('keys', session.key, 1)
end

local function remove_session(id)
  local session = record('sessions', id)
  if not session then return nil end
  redis.call('HDEL', KEYS[1], id)
  redis.call('ZREM', key('pending'), id)
  redis.call('SREM', key('sessions:of:' .. session.worker), id)
  redis.call('SREM', key('sessions:by:' .. session.server), id)
  count('keys', session.key, -1)
  touched[session.worker] = true
  return session
end

-- Removes a session, and takes it back from its worker's lifetime.
local function remove_session_that_never_began(id)
  local session = remove_session(id)
  if not session then return nil end
  local lifetimes = key('cluster:lifetime_connections')
  if tonumber(redis.call('HGET', lifetimes, session.worker) or '0') > 0 then
    redis.call('HINCRBY', lifetimes, session.worker, -1)
  end
  return session
end

local function move_session(id, session, server)
  redis.call('SREM', key('sessions:by:' .. session.server), id)
  redis.call('SADD', key('sessions:by:' .. server), id)
  session.server = server
end

local function remove_ticket(id)
  local ticket = record('tickets', id)
  if not ticket then return nil end
  redis.call('HDEL', key('tickets'), id)
  redis.call('SREM', key('tickets:by:' .. ticket.server), id)
  redis.call('ZREM', key('waiting'), id)
  redis.call('ZREM', key('queue:' .. ticket.kind .. ':' .. ticket.version), id)
  count('keys', ticket.key, -1)
  count('keys:waiting', ticket.key, -1)
  return ticket
end

local function remove_worker(worker)
  for _, id in ipairs(redis.call('SMEMBERS', key('sessions:of:' .. worker))) do remove_session(id) end
  local offer = record('offers', worker)
  if offer then unrank(worker, offer) end
  redis.call('HDEL', key('offers'), worker)
  redis.call('ZREM', key('workers'), worker)
  redis.call('HDEL', key('cluster:active_connections'), worker)
  redis.call('HDEL', key('cluster:lifetime_connections'), worker)
  redis.call('DEL', key('worker:' .. worker))
end

-- A session that its worker has not listed yet ends with its server. A listed one does not: its worker
-- ends it when the connection from the server ends.
local function remove_server(server)
  for _, id in ipairs(redis.call('SMEMBERS', key('tickets:by:' .. server))) do remove_ticket(id) end
  for _, id in ipairs(redis.call('SMEMBERS', key('sessions:by:' .. server))) do
    local session = record('sessions', id)
    if session and session.state == 'granted' then remove_session_that_never_began(id) end
  end
  redis.call('ZREM', key('servers'), server)
  redis.call('ZADD', key('lost'), whole(now + RELEASED_FOR), server)
end

local function grant(id, claim, worker, offer)
  local version = claim.version == '*' and offer.versions[1] or claim.version
  add_session(id, {worker = worker, kind = offer.kind, version = version, server = claim.server,
    key = claim.key, since = now, state = 'granted', ending = false, reserved = claim.reserved or false,
    detached = false})
  expire_at('pending', now + claim.dial, id)
  offer.lifetime = redis.call('HINCRBY', key('cluster:lifetime_connections'), worker, 1)
  return rank_worker(worker, offer, redis.call('HINCRBY', key('cluster:active_connections'), worker, 1))
end

local function last_call()
  local last = redis.call('XREVRANGE', key('calls'), '+', '-', 'COUNT', 1)
  if #last == 0 then return 0 end
  return tonumber(string.match(last[1][1], '^(%d+)-'))
end

-- The claim that has waited longest for a slot of this worker.
local function first_waiting(offer)
  local first, arrival
  for _, version in ipairs(versions_of(offer)) do
    local head = redis.call('ZRANGE', key('queue:' .. offer.kind .. ':' .. version), 0, 0, 'WITHSCORES')
    if #head > 0 and (not arrival or tonumber(head[2]) < arrival) then first, arrival = head[1], tonumber(head[2]) end
  end
  return first
end

-- Gives free slots of the touched workers to waiting claims, in their order.
local function serve_waiting()
  local workers, called = {}, {}
  for worker in pairs(touched) do workers[#workers + 1] = worker end
  table.sort(workers)
  for _, worker in ipairs(workers) do
    local offer = offer_of(worker)
    local open = offer and write_counts(worker, offer)
    while open do
      local id = first_waiting(offer)
      if not id then break end
      open = grant(id, remove_ticket(id), worker, offer)
      called[#called + 1] = id
    end
  end
  touched = {}
  if #called > 0 then
    redis.call('XADD', key('calls'), 'MAXLEN', '~', 1024, whole(last_call() + 1) .. '-0', 'tickets', table.concat(called, ' '))
  end
end

local function sweep()
  local now_text = whole(now)
  local function expired(set) return redis.call('ZRANGEBYSCORE', key(set), '-inf', now_text) end
  for _, worker in ipairs(expired('workers')) do remove_worker(worker) end
  for _, server in ipairs(expired('servers')) do remove_server(server) end
  for _, id in ipairs(expired('pending')) do remove_session_that_never_began(id) end
  for _, id in ipairs(expired('waiting')) do remove_ticket(id) end
  serve_waiting()
  local earliest = now + 3600000
  for _, set in ipairs({'workers', 'servers', 'pending', 'waiting'}) do
    local first = redis.call('ZRANGE', key(set), 0, 0, 'WITHSCORES')
    if #first > 0 then earliest = math.min(earliest, tonumber(first[2])) end
  end
  sweep_from(earliest)
end

if now >= sweep_at then sweep() end
