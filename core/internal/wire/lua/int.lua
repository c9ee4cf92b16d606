-- %d is three times faster than %.0f, but where a long has 32 bits it keeps no more of them.
local whole = string.format('%d', 9007199254740991) == '9007199254740991' and '%d' or '%.0f'
local function int(x) return string.format(whole, x) end
