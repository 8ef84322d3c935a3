package expressions

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// deepCosts count work to which upstream assigns no cost: visiting nested values of objects, and formatting them as strings.
func deepCosts() cel.ProgramOption {
	return cel.CostTrackerOptions(
		interpreter.OverloadCostTracker(overloads.Equals, costOfEquality),
		interpreter.OverloadCostTracker(overloads.NotEquals, costOfEquality),
		interpreter.OverloadCostTracker(overloads.InList, func(args []ref.Val, _ ref.Val) *uint64 {
			if len(args) != 2 || !isDeep(args[0]) {
				return nil
			}
			return cost(args[1])
		}),
		interpreter.OverloadCostTracker("string_format", func(args []ref.Val, _ ref.Val) *uint64 {
			if len(args) != 2 {
				return nil
			}
			return cost(args[1])
		}),
	)
}

func costOfEquality(args []ref.Val, _ ref.Val) *uint64 {
	if len(args) != 2 || !isDeep(args[0]) || !isDeep(args[1]) {
		return nil
	}
	return new(min(*cost(args[0]), *cost(args[1])))
}

// isDeep reports whether a value contains others.
func isDeep(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper:
		return true
	}
	return false
}

// cost returns the cost of visiting everything in a value, limited to the budget of all expressions.
func cost(v ref.Val) *uint64 { return new(visit(v, maxCost)) }

func visit(v ref.Val, most uint64) uint64 {
	n := uint64(1)
	switch v := v.(type) {
	case types.String:
		n += uint64(len(v)) / 10 // as in upstream
	case traits.Mapper:
		for i := v.Iterator(); n < most && i.HasNext() == types.True; {
			key := i.Next()
			n += visit(key, most-n)
			n += visit(v.Get(key), most-n)
		}
	case traits.Lister:
		for i := v.Iterator(); n < most && i.HasNext() == types.True; {
			n += visit(i.Next(), most-n)
		}
	}
	return n
}
