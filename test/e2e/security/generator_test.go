package security

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
)

// generator generates random values that a schema allows. It prefers values for which decoders differ.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) *generator { return &generator{rand.New(rand.NewPCG(seed, 0))} }

// poisonSeed returns KCP_POISON_SEED if it is set, to repeat a run.
func poisonSeed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("KCP_POISON_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return seed
}

var (
	oddTimes = []string{
		"2020-01-01T00:00:00Z", "2020-01-01t00:00:00z", "2020-01-01T00:00:00z", "2020-01-01t00:00:00Z", "9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00",
		"0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2016-12-31T23:59:60Z", "2020-02-30T00:00:00Z", "2020-01-01T24:00:00Z", "2020-01-01T00:00:00.123456789012Z",
		"2020-01-01T00:00:00,5Z", "2020-01-01T00:00:00+24:00", "2020-01-01T00:00:00-23:59", "2020-01-01T00:00:00+99:99", "2020-01-01 00:00:00Z", "2020-1-1T0:0:0Z",
		"1e4-01-01T00:00:00Z", "never", "",
	}
	oddStrings = []string{
		"", "a", "text", "v1", "v1alpha1", "root", "root:org", "widgets", "example.org", "Widget", "Ready", "True", "get", "*", "https://example.org", "2020-01-01T00:00:00Z",
		"widgets.example.org", "today.widgets.example.org", "\u0000", "\u2028", "null", "{}", "-1", "self.x", "Cluster", "Namespaced", "a=b", "😀", "a/b", "A",
	}
	oddNumbers = []any{int64(0), int64(1), int64(-1), int64(1 << 31), int64(-1 << 31), int64(1<<31 - 1), int64(1 << 53), int64(1<<63 - 1), float64(1 << 40), 1e18, 1e30, 1.0}
)

func (g *generator) pick(from ...string) string { return from[g.IntN(len(from))] }

// object returns an object without a name.
func (g *generator) object(kind schema.GroupVersionKind, s *apiextensionsv1.JSONSchemaProps) *unstructured.Unstructured {
	content, _ := g.value(s, 0, true).(map[string]any)
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	u.Object["metadata"] = g.metadata()
	return u
}

// minimal returns an object with only the required fields.
func (g *generator) minimal(kind schema.GroupVersionKind, s *apiextensionsv1.JSONSchemaProps) *unstructured.Unstructured {
	content, _ := g.value(s, 0, false).(map[string]any)
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(kind)
	u.Object["metadata"] = map[string]any{}
	return u
}

func (g *generator) metadata() map[string]any {
	m := map[string]any{}
	if g.IntN(4) == 0 {
		m["managedFields"] = []any{map[string]any{"manager": "m", "operation": "Update", "apiVersion": "v1", "time": g.pick(oddTimes...), "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{}}}}
	}
	if g.IntN(4) == 0 {
		m["creationTimestamp"] = g.pick(oddTimes...)
		m["deletionTimestamp"] = g.pick(oddTimes...)
	}
	if g.IntN(4) == 0 {
		m["annotations"] = map[string]any{g.pick("a/b", "kcp.io/cluster", "kcp.io/path", "kcp.io/unreadable"): g.pick(oddStrings...)}
	}
	if g.IntN(4) == 0 {
		m["labels"] = map[string]any{"a": "b"}
	}
	if g.IntN(8) == 0 {
		m["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "none"}}
	}
	if g.IntN(8) == 0 {
		m["generation"] = oddNumbers[g.IntN(len(oddNumbers))]
	}
	return m
}

func (g *generator) value(s *apiextensionsv1.JSONSchemaProps, depth int, whole bool) any {
	if s.Nullable && g.IntN(4) == 0 {
		return nil
	}
	if len(s.Enum) > 0 {
		var v any
		_ = json.Unmarshal(s.Enum[g.IntN(len(s.Enum))].Raw, &v) // the definition is valid
		return v
	}
	if s.XIntOrString {
		if g.IntN(2) == 0 {
			return g.pick(oddStrings...)
		}
		return oddNumbers[g.IntN(len(oddNumbers))]
	}
	switch s.Type {
	case "object":
		return g.mapping(s, depth, whole)
	case "array":
		return g.list(s, depth, whole)
	case "boolean":
		return g.IntN(2) == 0
	case "integer", "number":
		if s.Minimum != nil && g.IntN(2) == 0 {
			return int64(*s.Minimum)
		}
		return oddNumbers[g.IntN(len(oddNumbers))]
	case "string":
		return g.text(s)
	}
	return map[string]any{"type": "object", g.pick(oddStrings...): g.pick(oddStrings...)}
}

func (g *generator) mapping(s *apiextensionsv1.JSONSchemaProps, depth int, whole bool) map[string]any {
	m := map[string]any{}
	required := map[string]bool{}
	for _, name := range s.Required {
		required[name] = true
	}
	for name, property := range s.Properties {
		wanted := whole && depth < 8 && g.IntN(10) < 6 || whole && depth == 0
		if required[name] || wanted {
			m[name] = g.value(&property, depth+1, whole)
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil && whole {
		for range g.IntN(3) {
			m[g.pick(oddStrings...)] = g.value(s.AdditionalProperties.Schema, depth+1, whole)
		}
	}
	if s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields {
		m["type"] = "object"
	}
	return m
}

func (g *generator) list(s *apiextensionsv1.JSONSchemaProps, depth int, whole bool) []any {
	n := 0
	if s.MinItems != nil {
		n = int(*s.MinItems)
	}
	if whole {
		n += g.IntN(3)
	}
	if s.MaxItems != nil {
		n = min(n, int(*s.MaxItems))
	}
	list := []any{}
	if s.Items == nil || s.Items.Schema == nil {
		return list
	}
	for range n {
		list = append(list, g.value(s.Items.Schema, depth+1, whole))
	}
	return list
}

func (g *generator) text(s *apiextensionsv1.JSONSchemaProps) string {
	switch s.Format {
	case "date-time":
		if g.IntN(2) == 0 {
			return oddTimes[0]
		}
		return g.pick(oddTimes...)
	case "byte":
		return g.pick(base64.StdEncoding.EncodeToString([]byte("x")), "eA", "eA==\n", "e-_=", "text")
	}
	candidates := oddStrings
	if s.Format == "uri" {
		candidates = []string{"https://example.org", "https://example.org/a", "a:b", "https://[::1]:1", "%"}
	}
	if s.Pattern != "" {
		if pattern, err := regexp.Compile(s.Pattern); err == nil {
			candidates = nil
			for _, c := range append([]string{fmt.Sprintf("v%d", g.IntN(9)+1), "abc", "sha256:00", "root:a:b"}, oddStrings...) {
				if pattern.MatchString(c) {
					candidates = append(candidates, c)
				}
			}
		}
	}
	if len(candidates) == 0 {
		return "x"
	}
	text := g.pick(candidates...)
	if s.MinLength != nil && int64(len(text)) < *s.MinLength {
		text = g.pick("abc", "root", "widgets")
	}
	return text
}
