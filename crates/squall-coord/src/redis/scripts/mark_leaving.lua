-- Marks a member as on its way out.
-- Keys: as the prelude. Args: as the prelude, 3 member. Answer: 1.
-- Invariant: never taken back; nothing held is touched.
local all = members()
if all[ARGV[3]] and not all[ARGV[3]].leaving then
  all[ARGV[3]].leaving = true
  save(all)
  announce('leave', {ARGV[3]})
end
return 1
