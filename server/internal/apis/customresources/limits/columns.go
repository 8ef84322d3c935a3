package limits

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/util/jsonpath"
)

// checkColumns returns the columns that are within the limits, and errors for the others.
func checkColumns(columns []apiextensionsv1.CustomResourceColumnDefinition,
	at *field.Path) (good []apiextensionsv1.CustomResourceColumnDefinition, errs field.ErrorList) {
	total := 0
	for i := range columns {
		if i == MaxColumns {
			return good, append(errs, field.TooMany(at, len(columns), MaxColumns))
		}
		cost, err := columnCost(columns[i].JSONPath)
		if err == nil && total+cost > maxColumnCost {
			err = fmt.Errorf("the columns of this version together exceed a cost of %d; use fewer filters and wildcards", maxColumnCost)
		}
		if err != nil {
			text := columns[i].JSONPath
			if len(text) > 64 {
				text = text[:64] + "..."
			}
			errs = append(errs, field.Invalid(at.Index(i).Child("jsonPath"), text, err.Error()))
			continue
		}
		total += cost
		good = append(good, columns[i])
	}
	return good, errs
}

// columnCost returns the maximum number of times that a column visits the values of an object, or an error if it must
// not be evaluated. An invalid JSONPath costs nothing: upstream's conversion then creates no columns.
func columnCost(text string) (int, error) {
	if len(text) > MaxColumnPath {
		return 0, fmt.Errorf("must have at most %d bytes", MaxColumnPath)
	}
	parsed, err := jsonpath.Parse("", "{"+text+"}")
	if err != nil {
		return 0, nil
	}
	if len(parsed.Root.Nodes) != 1 {
		return 0, fmt.Errorf("must be a single path: braces are not supported")
	}
	path := &columnPath{copies: 1}
	if err := path.list(parsed.Root.Nodes[0].(*jsonpath.ListNode), 0); err != nil {
		return 0, err
	}
	return path.cost, nil
}

const (
	maxFilters = 4  // nested in each other
	maxUnion   = 16 // multiplies the number of results
)

// columnPath adds up the costs of the nodes of a path.
type columnPath struct {
	copies int // the maximum number of occurrences of each value in the results so far
	cost   int
}

// list visits the nodes of a list in order; all of them start from the same values.
func (p *columnPath) list(list *jsonpath.ListNode, filters int) error {
	for _, node := range list.Nodes {
		switch node := node.(type) {
		case *jsonpath.RecursiveNode:
			return fmt.Errorf(`".." is not supported in printer columns: write the full path`)
		case *jsonpath.IdentifierNode:
			return fmt.Errorf("%q is not supported in printer columns", node.Name)
		case *jsonpath.UnionNode:
			if p.copies *= len(node.Nodes); p.copies > maxUnion {
				return fmt.Errorf("unions may have at most %d results in total", maxUnion)
			}
			for _, alternative := range node.Nodes {
				if err := p.list(alternative, filters); err != nil {
					return err
				}
			}
		case *jsonpath.FilterNode:
			if filters == maxFilters {
				return fmt.Errorf("filters may be nested at most %d deep", maxFilters)
			}
			p.cost += 2 * p.copies
			for _, side := range []*jsonpath.ListNode{node.Left, node.Right} {
				within := &columnPath{copies: p.copies}
				if err := within.list(side, filters+1); err != nil {
					return err
				}
				p.cost += within.cost
			}
		case *jsonpath.WildcardNode, *jsonpath.ArrayNode:
			p.cost += p.copies
		}
	}
	if filters == 0 {
		p.cost++
	}
	return nil
}
