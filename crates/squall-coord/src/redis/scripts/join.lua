-- Becomes a member.
-- Keys: as the prelude, 5 beat (string, expires with the member; a view for people).
-- Args: as the prelude, 3 member, 4 ttl in ms. Answer: the revision.
-- Invariant: joining twice is joining once; the second only renews.
local all = members()
if not all[ARGV[3]] then
  announce('join', {ARGV[3]})
  all[ARGV[3]] = {joined_at = now, entry = revision()}
  save(all)
end
redis.call('ZADD', KEYS[2], whole(now + tonumber(ARGV[4])), ARGV[3])
redis.call('SET', KEYS[5], 'beat', 'PX', ARGV[4])
return revision()
