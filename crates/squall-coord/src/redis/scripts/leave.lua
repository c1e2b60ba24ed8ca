-- Stops being a member.
-- Keys: as the prelude, 5 beat. Args: as the prelude, 3 member. Answer: 1.
-- Invariant: whoever is not a member holds nothing.
redis.call('DEL', KEYS[5])
if redis.call('ZSCORE', KEYS[2], ARGV[3]) then
  local all = members()
  drop(all, ARGV[3])
  save(all)
  announce('leave', {ARGV[3]})
end
return 1
