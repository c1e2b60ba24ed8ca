-- Becomes a member.
-- Keys: as the prelude, 5 beat (string, expires with the member; a view for people).
-- Args: as the prelude, 3 member, 4 ttl in ms. Answer: the revision.
-- Invariant: joining twice is joining once; the second only renews.
if not redis.call('ZSCORE', KEYS[2], ARGV[3]) then
  announce('join', {ARGV[3]})
  local record = redis.call('GET', KEYS[1]) or '{}'
  -- As `save` writes it, at the end: decoding and composing all of it for every one of a thousand would take seconds.
  if string.sub(record, 1, 1) ~= '{' or string.sub(record, -1) ~= '}' then members() end
  local entry = cjson.encode(ARGV[3]) .. ':{"joined_at":' .. whole(now) .. ',"entry":' .. whole(revision()) .. ','
    .. cjson.encode(ARGV[2]) .. ':[]}'
  redis.call('SET', KEYS[1], string.sub(record, 1, -2) .. (record == '{}' and '' or ',') .. entry .. '}')
end
redis.call('ZADD', KEYS[2], whole(now + tonumber(ARGV[4])), ARGV[3])
redis.call('SET', KEYS[5], 'beat', 'PX', ARGV[4])
return revision()
