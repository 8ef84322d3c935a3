package repository

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// readsTime are the functions that read the time, or wait for it, without an injected clock.
var readsTime = map[string]bool{
	"time.Now": true, "time.Since": true, "time.Until": true, "time.After": true, "time.AfterFunc": true, "time.NewTimer": true,
	"time.NewTicker": true, "time.Tick": true, "time.Sleep": true, "metav1.Now": true, "clock.RealClock": true,
	"wait.UntilWithContext": true, "wait.Until": true,
}

// TestControllersHaveOneShape requires that each package of a controller declares Inputs, that every constructor takes them and returns
// a controller of the runner, and that time comes from a clock in the Inputs.
func TestControllersHaveOneShape(t *testing.T) {
	const controllers = "server/internal/controllers/"
	packages := map[string][]*ast.File{}
	fset := token.NewFileSet()
	for _, file := range files(t, controllers+"*.go") {
		dir := path.Dir(strings.TrimPrefix(file, controllers))
		if strings.HasSuffix(file, "_test.go") || dir == "runner" {
			continue
		}
		parsed, err := parser.ParseFile(fset, filepath.Join(root, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		packages[dir] = append(packages[dir], parsed)
	}
	if len(packages) < 20 {
		t.Errorf("only %d packages found", len(packages))
	}
	for dir, parsed := range packages {
		inputs, constructors := false, 0
		for _, file := range parsed {
			for _, declaration := range file.Decls {
				switch d := declaration.(type) {
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						if declared, ok := spec.(*ast.TypeSpec); ok && declared.Name.Name == "Inputs" {
							inputs = true
						}
					}
				case *ast.FuncDecl:
					if d.Recv != nil && d.Name.Name == "Run" {
						t.Errorf("%s: a controller runs by the runner: remove the method Run", fset.Position(d.Pos()))
					}
					if d.Recv != nil || !strings.HasPrefix(d.Name.Name, "New") {
						continue
					}
					constructors++
					switch signature := types.ExprString(d.Type); signature {
					case "func(in Inputs) *runner.Controller", "func(in Inputs) *runner.ObjectController":
					default:
						t.Errorf("%s: %s is %s, want func(in Inputs) *runner.Controller", fset.Position(d.Pos()), d.Name, signature)
					}
				}
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if selector, ok := n.(*ast.SelectorExpr); ok && readsTime[types.ExprString(selector)] {
					t.Errorf("%s: %s: use a clock of the Inputs", fset.Position(n.Pos()), types.ExprString(selector))
				}
				return true
			})
		}
		if !inputs || constructors == 0 {
			t.Errorf("%s%s: declares Inputs: %t, has %d constructors; want Inputs and New", controllers, dir, inputs, constructors)
		}
	}
}
