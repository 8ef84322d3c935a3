package informers

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// readStored are the functions that refer to fields which an informer trims, by field. Each must write the field, or take the object from
// storage, a request or an informer that keeps the field of this object.
//
// The transforms, and the table that declares them, are left out.
var readStored = map[string][]string{
	"internal.tenancy.kcp.io/cluster": {
		"internal/controllers/workspace.clusterOf",    // of an unscheduled workspace, which has the annotation
		"internal/controllers/workspace.schedule",     // writes a stored workspace
		"internal/tenancy/placement.Of",               // of an unscheduled workspace, which has the annotation
		"internal/tenancy/scheduling.RemovePlacement", // writes a stored workspace
		"internal/tenancy/scheduling.SetPlacement",    // writes a stored or a new workspace
		"internal/tenancy/scheduling.record",          // of a stored workspace
	},
	"kubectl.kubernetes.io/last-applied-configuration": {
		"internal/shards/mirror.received", // of an object of the cache server
	},
	"v1.ObjectMeta.ManagedFields": {
		"internal/cacheserver.validate", // of an object in a request
	},
	"v1.ConfigMap.Annotations": {
		"internal/controllers/rootca.isCurrent", // of the only ConfigMap that has its annotations
	},
	"v1.Secret.Annotations": {
		"github.com/kcplane/kcp/server.bootstrapMetricsViewer", // writes a new Secret
		"internal/controllers/serviceaccounttoken.accountOf",   // an annotation that the informer keeps
		"internal/controllers/serviceaccounttoken.fill",        // writes a stored Secret
		"internal/controllers/serviceaccounttoken.reconcile",   // annotations that the informer keeps
	},
	"v1.Secret.Data": {
		"internal/auth/clientcertificates.Load",         // of a stored Secret
		"internal/controllers/serviceaccounttoken.fill", // writes a stored Secret
		"internal/tenancy/identity.hashOf",              // of a stored Secret
	},
	"v1.ConfigMap.Data": {
		"internal/controllers/rootca.isCurrent", // of the only ConfigMap that has its data
		"internal/controllers/rootca.reconcile", // as isCurrent
	},
	"v1alpha1.LogicalClusterStatus.Conditions": {
		"internal/controllers/logicalcluster.show",      // writes a stored object
		"internal/informers/transitions.logicalCluster", // of a logical cluster that is being deleted
		"internal/shards/workspaces.StateOf",            // of a logical cluster that is being deleted, which has its conditions
		"internal/shards/workspaces.logicalCluster",     // writes an object that is not stored
		"internal/tenancy/scheduling.MirrorRemoval",     // of a logical cluster that is being deleted, which has its conditions
	},
	"v1alpha1.WorkspaceStatus.Conditions": {
		"internal/controllers/mount.show",               // writes a stored object
		"internal/controllers/workspace.setUnscheduled", // writes a stored object
		"internal/request/home.show",                    // writes an object that is not stored
		"internal/request/home.sinceCreation",           // as show
		"internal/shards/workspaces.mirror",             // writes a stored object
		"internal/tenancy/scheduling.MirrorRemoval",     // writes a stored object
		"internal/tenancy/scheduling.MirrorStatus",      // writes a stored object
		"internal/tenancy/scheduling.SetLocation",       // writes a stored or a new workspace
		"internal/tenancy/scheduling.contentOf",         // of a stored or a new workspace
	},
}

// trimmedFields returns the trimmed fields as <package>.<struct>.<field>, and the keys of trimmed annotations. Fields of TypeMeta are left
// out: clients and storage do not fill them either.
func trimmedFields(t *testing.T) (fields, annotations map[string]bool) {
	t.Helper()
	fields, annotations = map[string]bool{}, map[string]bool{}
	for _, kind := range Kinds() {
		for _, trimmed := range kind.Trimmed {
			path, key := entry(trimmed.Path)
			if path == "kind" || path == "apiVersion" {
				continue
			}
			if key != "" {
				annotations[key] = true
				continue
			}
			parent := reflect.TypeOf(kind.Example).Elem()
			if len(trimmed.Except) > 0 { // all kinds have the map, so only direct references to that of this kind count
				fields[parent.PkgPath()+"."+parent.Name()+".Annotations"] = true
				continue
			}
			for {
				name, rest, nested := strings.Cut(path, ".")
				i := 0
				for ; i < parent.NumField(); i++ {
					if tag, _, _ := strings.Cut(parent.Field(i).Tag.Get("json"), ","); tag == name {
						break
					}
				}
				if i == parent.NumField() {
					t.Fatalf("%s has no field %s", parent, name)
				}
				if !nested {
					fields[parent.PkgPath()+"."+parent.Name()+"."+parent.Field(i).Name] = true
					break
				}
				parent, path = parent.Field(i).Type, rest
			}
		}
	}
	return fields, annotations
}

// TestReadersOfTrimmedFieldsAreListed finds all functions of the server that refer to a field which an informer trims.
func TestReadersOfTrimmedFieldsAreListed(t *testing.T) {
	fields, annotations := trimmedFields(t)
	const server = "github.com/kcplane/kcp/server"
	list := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .GoFiles \",\"}}", server+"/...")
	var stderr bytes.Buffer
	list.Stderr = &stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	exports, sources := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(string(out)) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[columns[0]] = columns[1]
		declares := columns[0] == server+"/internal/informers" || columns[0] == server+"/internal/informers/transform"
		if !declares && (columns[0] == server || strings.HasPrefix(columns[0], server+"/")) {
			for _, file := range strings.Split(columns[3], ",") {
				sources[columns[0]] = append(sources[columns[0]], filepath.Join(columns[2], file))
			}
		}
	}
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	found := map[string][]string{}
	for _, path := range slices.Sorted(maps.Keys(sources)) {
		var files []*ast.File
		for _, source := range sources[path] {
			file, err := parser.ParseFile(fset, source, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}}
		config := types.Config{Importer: imports}
		if _, err := config.Check(path, fset, files, info); err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			for _, declaration := range file.Decls {
				f, ok := declaration.(*ast.FuncDecl)
				if !ok {
					continue
				}
				for _, reference := range references(f, info, fields, annotations) {
					name := strings.TrimPrefix(path, server+"/") + "." + f.Name.Name
					if !slices.Contains(found[reference], name) {
						found[reference] = append(found[reference], name)
					}
				}
			}
		}
	}
	for _, reference := range slices.Sorted(maps.Keys(found)) {
		for _, reader := range found[reference] {
			if !slices.Contains(readStored[reference], reader) {
				t.Errorf("%s refers to %s, which an informer trims: read the object from storage and list the function in readStored, "+
					"or keep the field", reader, reference)
			}
		}
	}
	for reference, readers := range readStored {
		for _, reader := range readers {
			if !slices.Contains(found[reference], reader) {
				t.Errorf("%s does not refer to %s any more: remove it from the list", reader, reference)
			}
		}
	}
}

// references returns the trimmed fields and annotations that a function refers to.
func references(f *ast.FuncDecl, info *types.Info, fields, annotations map[string]bool) []string {
	var all []string
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if selection := info.Selections[n]; selection != nil && selection.Kind() == types.FieldVal {
				for _, field := range []string{fieldOf(selection), promotedOf(selection)} {
					if fields[field] {
						all = append(all, field[strings.LastIndex(field, "/")+1:])
						break
					}
				}
			}
		case *ast.Ident:
			if c, ok := info.Uses[n].(*types.Const); ok && c.Val().Kind() == constant.String && annotations[constant.StringVal(c.Val())] {
				all = append(all, constant.StringVal(c.Val()))
			}
		}
		return true
	})
	return all
}

// promotedOf returns a selected field as <package>.<type>.<field>, where the type is that of the expression, which may embed the struct.
func promotedOf(selection *types.Selection) string {
	receiver := selection.Recv()
	if pointer, ok := types.Unalias(receiver).(*types.Pointer); ok {
		receiver = pointer.Elem()
	}
	named, ok := types.Unalias(receiver).(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return ""
	}
	return fmt.Sprintf("%s.%s.%s", named.Obj().Pkg().Path(), named.Obj().Name(), selection.Obj().Name())
}

// fieldOf returns a selected field as <package>.<struct>.<field>.
func fieldOf(selection *types.Selection) string {
	parent := selection.Recv()
	for i, index := range selection.Index() {
		if pointer, ok := types.Unalias(parent).(*types.Pointer); ok {
			parent = pointer.Elem()
		}
		structure, ok := parent.Underlying().(*types.Struct)
		if !ok {
			return ""
		}
		if i == len(selection.Index())-1 {
			named, ok := types.Unalias(parent).(*types.Named)
			if !ok || named.Obj().Pkg() == nil {
				return ""
			}
			return fmt.Sprintf("%s.%s.%s", named.Obj().Pkg().Path(), named.Obj().Name(), structure.Field(index).Name())
		}
		parent = structure.Field(index).Type()
	}
	return ""
}
