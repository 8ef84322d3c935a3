package limits

import "regexp/syntax"

// instructions returns how many instructions a regular expression compiles to, without compiling it. It stops counting
// above most. The compiler copies counted repetitions.
func instructions(pattern string, most int) (int, error) {
	if len(pattern) > most {
		return len(pattern), nil
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, err
	}
	return count(parsed, most), nil
}

func count(re *syntax.Regexp, most int) int {
	n := 1
	switch re.Op {
	case syntax.OpRepeat, syntax.OpConcat:
		n = 0
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n = 1 + len(re.Rune)/8 // classes are stored as ranges
	}
	for _, sub := range re.Sub {
		if n += count(sub, most); n > most {
			return most + 1
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, most+1)
}
