-- Adds a member.
-- Keys: as the prelude, 5 heartbeat (string that expires with the member; only for people who look
--   at the keys).
-- Args: as the prelude, 3 member, 4 ttl in ms. Reply: the revision.
-- Invariant: a second join only renews the first; afterwards the members record lists the member, even
--   if the record alone was deleted.
if not redis.call('ZSCORE', KEYS[2], ARGV[3]) or not members()[ARGV[3]] then
  bump_revision('join', {ARGV[3]})
  local record = redis.call('GET', KEYS[1]) or '{}'
  -- Appends the entry in the form that `save` writes. Decoding and encoding the whole record for
  -- each of a thousand members would take seconds.
  if string.sub(record, 1, 1) ~= '{' or string.sub(record, -1) ~= '}' then
    save(members())
    record = redis.call('GET', KEYS[1]) or '{}'
  end
  if string.find(record, '"joined_at"%s*:%s*"') then redis.call('HSET', KEYS[3], 'of_runnel', 1) end
  local entry = cjson.encode(ARGV[3]) .. ':{"joined_at":' .. whole(now) .. ',"entry":' .. whole(revision()) .. ','
    .. cjson.encode(ARGV[2]) .. ':[]}'
  redis.call('SET', KEYS[1], string.sub(record, 1, -2) .. (string.find(record, '^{%s*}$') and '' or ',') .. entry .. '}')
end
redis.call('ZADD', KEYS[2], whole(now + tonumber(ARGV[4])), ARGV[3])
redis.call('SET', KEYS[5], 'beat', 'PX', ARGV[4])
return revision()
