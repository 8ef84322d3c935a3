package expressions

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

const (
	// maxCost limits the cost of all policies for one request: upstream's limit for each binding.
	maxCost = celconfig.RuntimeCELCostBudget
	// maxTime limits the time of evaluating them, because some operations take time but have no cost.
	maxTime = 10 * time.Second
	// baseCost is the cost of preparing the variables of an expression.
	baseCost = 100
	// turn is the cost after which a request yields to others.
	turn = 100_000
)

// errTooLong is the cause with which the context of an expression that takes too long is cancelled.
var errTooLong = errors.New("evaluating admission policies takes too long")

type contextKey struct{}

// Key of the *Budget in the context of a request.
var Key any = contextKey{}

// Budget counts the cost of evaluating policies for one request. The zero value is the budget of a request that has
// evaluated none.
type Budget struct {
	cost, yielded atomic.Int64
	// took is the time spent, in nanoseconds.
	took atomic.Int64
	// until is the deadline of the current expression; nil if there is none.
	until atomic.Pointer[time.Time]
}

// WithBudget returns a context in which policies spend the budget of the request, or a new one if the request has none.
func WithBudget(ctx context.Context) context.Context {
	if budgetOf(ctx) != nil {
		return ctx
	}
	return context.WithValue(ctx, Key, &Budget{})
}

func budgetOf(ctx context.Context) *Budget {
	b, _ := ctx.Value(Key).(*Budget)
	return b
}

// Err returns an error if policies exceeded the budget of the request of a context, or if the request has ended.
func Err(ctx context.Context) error {
	b := budgetOf(ctx)
	switch {
	case b != nil && b.cost.Load() > maxCost:
		return tooExpensive(fmt.Sprintf("cost at most %d CEL cost units", maxCost))
	case b != nil && b.took.Load() >= int64(maxTime):
		return tooExpensive(fmt.Sprintf("take at most %s", maxTime))
	case ctx.Err() != nil:
		return fmt.Errorf("the request has ended: %w", context.Cause(ctx))
	}
	return nil
}

func tooExpensive(limit string) error {
	return fmt.Errorf("admission policies, with all their bindings and parameters, may %s for each request: "+
		"use fewer or cheaper policies, match fewer resources, or send a smaller object", limit)
}

// Spend subtracts a cost from the budget of a request, and then returns the result of Err.
func Spend(ctx context.Context, cost uint64) error {
	if b := budgetOf(ctx); b != nil {
		b.spend(cost)
	}
	return Err(ctx)
}

// spend subtracts a cost from the budget.
func (b *Budget) spend(cost uint64) { b.cost.Add(int64(min(cost, 2*maxCost))) }

// turnIsOver reports whether enough was spent since the last yield for the request to yield to others.
func (b *Budget) turnIsOver() bool {
	spent := b.cost.Load()
	if spent-b.yielded.Load() < turn {
		return false
	}
	b.yielded.Store(spent)
	return true
}

// start returns the deadline of an expression, and whether it is the outermost one, after which stop must be called: expressions
// evaluate others, such as variables.
func (b *Budget) start() (until time.Time, outermost bool) {
	if outer := b.until.Load(); outer != nil {
		return *outer, false
	}
	until = time.Now().Add(maxTime - time.Duration(b.took.Load()))
	b.until.Store(&until)
	return until, true
}

// stop records the time of the outermost expression.
func (b *Budget) stop() {
	left := time.Until(*b.until.Swap(nil))
	b.took.Store(int64(maxTime - left))
}
