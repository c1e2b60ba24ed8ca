-- Reads the part of the store that concerns one member: with a thousand members, a hundredth of the
--   whole.
-- Keys: as the prelude. Args: as the prelude, 3 member.
-- Reply: revision, number of members, number of older members that are not leaving (-1: not a
--   member), its units (JSON list), then unit and lease ('<epoch> <member>') in turn, for the units
--   that it holds and those assigned to it.
-- Invariant: all parts belong to the same instant and equal those of snapshot.lua.
local record = redis.call('GET', KEYS[1]) or '{}'
local size = redis.call('ZCARD', KEYS[2])
-- `save` writes the record in a fixed form, so its text can be searched. Decoding all of it would
-- cost more than everything else here.
local name = cjson.encode(ARGV[3]) .. ':{'
local _, at = string.find(record, ',' .. name, 1, true)
if not at and string.sub(record, 2, #name + 1) == name then at = #name + 1 end
if not at then return {revision(), size, -1, '[]'} end
local mine = tonumber(string.match(record, '"entry":(%d+)', at))
local before = 0
for entry, word in string.gmatch(record, '"entry":(%d+),"(%a+)"') do
  if word ~= 'leaving' and tonumber(entry) < mine then before = before + 1 end
end
local _, from = string.find(record, cjson.encode(ARGV[2]) .. ':[', at, true)
local to = string.find(record, ']', from, true)
local units = string.sub(record, from, to)
local answer, wanted = {revision(), size, before, units}, {}
for _, unit in ipairs(cjson.decode(units)) do wanted[tostring(unit)] = true end
local held = redis.call('HGETALL', KEYS[3])
for n = 1, #held, 2 do
  if string.sub(held[n], 1, 5) == 'unit:' then
    local unit = string.sub(held[n], 6)
    local _, holder = lease(held[n + 1])
    if holder == ARGV[3] or wanted[unit] then
      answer[#answer + 1] = unit
      answer[#answer + 1] = held[n + 1]
    end
  end
end
return answer
