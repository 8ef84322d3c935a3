package expressions

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/overloads"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// deepCosts count the work for which upstream counts nothing: to visit what lies deep in objects, and to write it into texts.
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

// isDeep returns whether a value contains others.
func isDeep(v ref.Val) bool {
	switch v.(type) {
	case traits.Lister, traits.Mapper:
		return true
	}
	return false
}

// cost returns that of visiting everything in a value, at the most what all expressions may cost.
func cost(v ref.Val) *uint64 { return new(visit(v, maxCost)) }

func visit(v ref.Val, most uint64) uint64 {
	n := uint64(1)
	switch v := v.(type) {
	case types.String:
		n += uint64(len(v)) / 10 // as upstream counts it
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
