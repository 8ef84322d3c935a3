// Package definitions checks the definitions of the operator's kinds: which manifests they accept, and the errors for others.
package definitions

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdvalidation "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
)

const configDir = "../../config"

// definition is a CustomResourceDefinition as an API server uses it.
type definition struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

// definitions reads and validates the definitions in config/crd as an API server does, and returns them by kind.
func definitions(t *testing.T) map[string]definition {
	t.Helper()
	byKind := map[string]definition{}
	for _, file := range glob(t, filepath.Join(configDir, "crd/bases/*.yaml")) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(read(t, file), crd); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(crd)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
		crd.Status.StoredVersions = []string{v1alpha1.SchemeGroupVersion.Version}
		internal := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil); err != nil {
			t.Fatal(err)
		}
		if errs := crdvalidation.ValidateCustomResourceDefinition(context.Background(), internal); len(errs) > 0 {
			t.Fatalf("%s: %v", file, errs.ToAggregate())
		}
		byKind[crd.Spec.Names.Kind] = compile(t, internal)
	}
	return byKind
}

func compile(t *testing.T, crd *apiextensions.CustomResourceDefinition) definition {
	t.Helper()
	// With one version, the internal form keeps the schema beside the versions.
	openapi := crd.Spec.Validation.OpenAPIV3Schema
	structural, err := schema.NewStructural(openapi)
	if err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(openapi)
	if err != nil {
		t.Fatal(err)
	}
	return definition{
		structural: structural,
		schema:     validator,
		cel:        cel.NewValidator(structural, true, celconfig.PerCallLimit),
	}
}

// validate returns the errors of an API server for an object, or for an update of old if it is not nil.
func (d definition) validate(object, old map[string]any) field.ErrorList {
	pruned := runtime.DeepCopyJSON(object)
	unknown := pruning.PruneWithOptions(pruned, d.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	var errs field.ErrorList
	for _, path := range unknown {
		errs = append(errs, field.Invalid(field.NewPath(path), nil, "unknown field"))
	}
	errs = append(errs, validation.ValidateCustomResource(nil, object, d.schema)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, d.structural, object)...)
	var oldObject any
	if old != nil {
		oldObject = old
	}
	celErrs, _ := d.cel.Validate(context.Background(), nil, d.structural, object, oldObject, celconfig.RuntimeCELCostBudget)
	return append(errs, celErrs...)
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing matches %s: %v", pattern, err)
	}
	return files
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func parse(t *testing.T, text []byte) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal(text, &object, func(d *json.Decoder) *json.Decoder { d.UseNumber(); return d }); err != nil {
		t.Fatal(err)
	}
	return integers(object).(map[string]any)
}

// integers converts numbers to int64 where possible, as an API server does.
func integers(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			value[key] = integers(v)
		}
	case []any:
		for i, v := range value {
			value[i] = integers(v)
		}
	case json.Number:
		if i, err := value.Int64(); err == nil {
			return i
		}
		f, _ := value.Float64()
		return f
	}
	return value
}

// D1: beyond 256 KiB kubectl apply cannot write down what it applied, and all of them have to fit into one release of Helm.
func TestDefinitionsStaySmall(t *testing.T) {
	for _, file := range glob(t, filepath.Join(configDir, "crd/bases/*.yaml")) {
		if size := len(read(t, file)); size >= 200_000 {
			t.Errorf("%s has %d bytes", file, size)
		}
	}
}

func TestManifestsAreValid(t *testing.T) {
	byKind := definitions(t)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for _, file := range append(glob(t, "testdata/*.yaml"), glob(t, filepath.Join(configDir, "samples/*.yaml"))...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			for document := range bytes.SplitSeq(read(t, file), []byte("\n---\n")) {
				object := parse(t, document)
				kind := object["kind"].(string)
				if errs := byKind[kind].validate(object, nil); len(errs) > 0 {
					t.Errorf("%s: refused: %v", kind, errs.ToAggregate())
				}
				if errs := byKind[kind].validate(object, runtime.DeepCopyJSON(object)); len(errs) > 0 {
					t.Errorf("%s: refused when it is applied again: %v", kind, errs.ToAggregate())
				}
				keepsEveryField(t, scheme, kind, object)
			}
		})
	}
}

// keepsEveryField reads an object into its Go type and back.
func keepsEveryField(t *testing.T, scheme *runtime.Scheme, kind string, object map[string]any) {
	t.Helper()
	typed, err := scheme.New(v1alpha1.SchemeGroupVersion.WithKind(kind))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(typed); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(typed)
	if err != nil {
		t.Fatal(err)
	}
	if lost := missing("", parse(t, text), parse(t, again)); len(lost) > 0 {
		t.Errorf("lost in the Go type: %s\n%s", strings.Join(lost, ", "), cmp.Diff(string(text), string(again)))
	}
}

// missing lists the fields that only the first value has. Zero values may be left out.
func missing(path string, want, got any) []string {
	var lost []string
	if fields, ok := want.(map[string]any); ok {
		have, _ := got.(map[string]any)
		for name, value := range fields {
			lost = append(lost, missing(path+"."+name, value, have[name])...)
		}
		return lost
	}
	if got == nil && want != "" && want != false && want != int64(0) {
		lost = append(lost, path)
	}
	return lost
}
