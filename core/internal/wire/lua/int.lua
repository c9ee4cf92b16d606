-- %d is three times faster than %.0f, but keeps only 32 bits if a long has no more.
local whole = string.format('%d', 9007199254740991) == '9007199254740991' and '%d' or '%.0f'
local function int(x) return string.format(whole, x) end
