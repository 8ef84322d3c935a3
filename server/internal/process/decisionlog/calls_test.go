package decisionlog

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// keyed are methods and functions that log, with the index of their first key.
var keyed = map[string]int{"Info": 1, "InfoS": 1, "Error": 2, "ErrorS": 2, "WithValues": 0}

// unstructured are functions of klog that log text.
var unstructured = map[string]bool{
	"Infof": true, "Infoln": true, "Warning": true, "Warningf": true, "Warningln": true, "Errorf": true, "Errorln": true,
}

func TestLogCallsUseTheKeysOfThisPackage(t *testing.T) {
	server, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	err = filepath.WalkDir(server, func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			selector, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if isNamed(selector.X, "klog") && unstructured[selector.Sel.Name] {
				t.Errorf("%s: klog.%s writes text: use a structured function", files.Position(call.Pos()), selector.Sel.Name)
			}
			first, logs := keyed[selector.Sel.Name]
			if !logs || !isLogger(selector.X) || len(call.Args) < first {
				return true
			}
			calls++
			for i := first; i < len(call.Args); i += 2 {
				if !isKey(call.Args[i]) && filepath.Base(filepath.Dir(name)) != "decisionlog" {
					t.Errorf("%s: a key is not a constant of decisionlog", files.Position(call.Args[i].Pos()))
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls < 40 {
		t.Errorf("found only %d log calls", calls)
	}
}

// isLogger reports whether an expression is klog, a variable named logger, or a call that returns a logger.
func isLogger(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name == "klog" || x.Name == "logger"
	case *ast.CallExpr:
		selector, ok := x.Fun.(*ast.SelectorExpr)
		return ok && (isNamed(selector.X, "klog") || isNamed(selector.X, "decisionlog") || isLogger(selector.X))
	}
	return false
}

func isKey(x ast.Expr) bool {
	selector, ok := x.(*ast.SelectorExpr)
	return ok && isNamed(selector.X, "decisionlog")
}

func isNamed(x ast.Expr, name string) bool {
	ident, ok := x.(*ast.Ident)
	return ok && ident.Name == name
}
