package apiconversion

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	apisv1alpha1 "github.com/kcplane/kcp/api/apis/v1alpha1"
)

// structural returns the schema of an object whose spec has the properties, written in YAML.
func structural(t testing.TB, properties string) *structuralschema.Structural {
	t.Helper()
	var v1 apiextensionsv1.JSONSchemaProps
	text := "type: object\nproperties:\n  spec:\n    type: object\n    properties:\n" + indented(properties)
	if err := yaml.UnmarshalStrict([]byte(text), &v1); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&v1, &internal, nil); err != nil {
		t.Fatal(err)
	}
	schema, err := structuralschema.NewStructural(&internal)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func indented(text string) string {
	var lines []string
	for _, line := range strings.Split(strings.Trim(text, "\n"), "\n") {
		lines = append(lines, "      "+strings.ReplaceAll(line, "\t", "  "))
	}
	return strings.Join(lines, "\n")
}

// object returns a widget with a spec, written in YAML.
func object(t testing.TB, version, spec string) *unstructured.Unstructured {
	t.Helper()
	var content map[string]any
	if err := yaml.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatalf("%v in\n%s", err, spec)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.io/" + version, "kind": "Widget",
		"metadata": map[string]any{"name": "w", "namespace": "default", "labels": map[string]any{"a": "b"}},
		"spec":     content,
	}}
	text, err := obj.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	obj = &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(text); err != nil { // numbers have the types of the API server
		t.Fatal(err)
	}
	return obj
}

func annotated(obj *unstructured.Unstructured, version, value string) *unstructured.Unstructured {
	obj.SetAnnotations(map[string]string{Annotation(version): value})
	return obj
}

// between returns the spec of conversions between v1 and v2.
func between(there, back []apisv1alpha1.APIConversionRule) *apisv1alpha1.APIConversionSpec {
	return &apisv1alpha1.APIConversionSpec{Conversions: []apisv1alpha1.APIVersionConversion{{From: "v1", To: "v2", Rules: there}, {From: "v2", To: "v1", Rules: back}}}
}

func compiled(t testing.TB, spec *apisv1alpha1.APIConversionSpec, v1, v2 string) *Converter {
	t.Helper()
	converter, errs := Compile(spec, map[string]*structuralschema.Structural{"v1": structural(t, v1), "v2": structural(t, v2)}, Options{})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return converter
}

func convert(t testing.TB, converter *Converter, obj *unstructured.Unstructured, version string) *unstructured.Unstructured {
	t.Helper()
	before := obj.DeepCopy()
	converted, err := converter.Convert(context.Background(), obj, version)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, obj); diff != "" {
		t.Fatalf("the source was changed:\n%s", diff)
	}
	return converted
}

func TestRealWorldConversions(t *testing.T) {
	for name, tc := range map[string]struct {
		v1, v2      string // properties of the spec
		there, back []apisv1alpha1.APIConversionRule
		object      string // in v1
		want        string // in v2
		kept        string // of v1
		edited      string // in v2 afterwards
		wantEdited  string // in v1
		keptEdited  string // of v2
	}{
		"a field gets another name": {
			v1: "size: {type: integer}\ncolor: {type: string}", v2: "replicas: {type: integer}\ncolor: {type: string}",
			there:  []apisv1alpha1.APIConversionRule{{Field: ".spec.size", Destination: ".spec.replicas"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: ".spec.replicas", Destination: ".spec.size"}},
			object: "{size: 3, color: red}", want: "{replicas: 3, color: red}",
			edited: "{replicas: 4}", wantEdited: "{size: 4}",
		},
		"two fields swap their names": {
			v1: "a: {type: string}\nb: {type: string}", v2: "a: {type: string}\nb: {type: string}",
			there:  []apisv1alpha1.APIConversionRule{{Field: "spec.a", Destination: "spec.b"}, {Field: "spec.b", Destination: "spec.a"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: "spec.a", Destination: "spec.b"}, {Field: "spec.b", Destination: "spec.a"}},
			object: "{a: x}", want: "{b: x}", edited: "{a: z, b: w}", wantEdited: "{a: w, b: z}",
		},
		"a field is split into two": {
			v1: "name: {type: string}\nage: {type: integer}", v2: "first: {type: string}\nlast: {type: string}\nage: {type: integer}",
			there: []apisv1alpha1.APIConversionRule{
				{Field: "spec.name", Destination: "spec.first", Transformation: "self.split(' ')[0]"},
				{Field: "spec.name", Destination: "spec.last", Transformation: "self.contains(' ') ? optional.of(self.split(' ')[1]) : optional.none()"},
			},
			back: []apisv1alpha1.APIConversionRule{{Field: "spec", Destination: "spec.name",
				Transformation: "has(self.first) ? optional.of(self.first + (has(self.last) ? ' ' + self.last : '')) : optional.none()"}},
			object: "{name: Ada King Lovelace, age: 36}", want: "{first: Ada, last: King, age: 36}",
			kept:   `{"values":{"spec.name":"Ada King Lovelace"}}`,
			edited: "{first: Ada, last: Byron, age: 37}", wantEdited: "{name: Ada Byron, age: 37}",
		},
		"fields move into a nested object": {
			v1: "host: {type: string}\nport: {type: integer}\nretries: {type: integer}",
			v2: "server: {type: object, properties: {host: {type: string}, port: {type: integer}, tls: {type: boolean}}}",
			there: []apisv1alpha1.APIConversionRule{{Field: "spec.host", Destination: "spec.server.host"},
				{Field: "spec.port", Destination: "spec.server.port"}},
			back: []apisv1alpha1.APIConversionRule{{Field: "spec.server.host", Destination: "spec.host"},
				{Field: "spec.server.port", Destination: "spec.port"}},
			object: "{host: h, port: 80, retries: 3}", want: "{server: {host: h, port: 80}}", kept: `{"values":{"spec.retries":3}}`,
			edited: "{server: {host: h2, tls: true}}", wantEdited: "{host: h2, retries: 3}",
			keptEdited: `{"values":{"spec.server.tls":true}}`,
		},
		"an object moves, and one of its fields elsewhere": {
			v1:     "db: {type: object, properties: {host: {type: string}, password: {type: string}, legacy: {type: boolean}}}",
			v2:     "storage: {type: object, properties: {db: {type: object, properties: {host: {type: string}}}, secret: {type: string}}}",
			there:  []apisv1alpha1.APIConversionRule{{Field: "spec.db.password", Destination: "spec.storage.secret"}, {Field: "spec.db", Destination: "spec.storage.db"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: "spec.storage.secret", Destination: "spec.db.password"}, {Field: "spec.storage.db", Destination: "spec.db"}},
			object: "{db: {host: h, password: p, legacy: true}}", want: "{storage: {db: {host: h}, secret: p}}",
			kept:   `{"values":{"spec.db.legacy":true}}`,
			edited: "{storage: {secret: q}}", wantEdited: "{db: {password: q, legacy: true}}",
		},
		"a list of strings becomes a list of objects": {
			v1: "hosts: {type: array, items: {type: string}}",
			v2: "hosts: {type: array, items: {type: object, properties: {name: {type: string}, port: {type: integer}}}}",
			there: []apisv1alpha1.APIConversionRule{{Field: "spec.hosts", Destination: "spec.hosts",
				Transformation: "self.map(h, {'name': dyn(h), 'port': dyn(443)})"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: "spec.hosts", Destination: "spec.hosts", Transformation: "self.map(h, h.name)"}},
			object: "{hosts: [a, b]}", want: "{hosts: [{name: a, port: 443}, {name: b, port: 443}]}",
			edited: "{hosts: [{name: a, port: 80}]}", wantEdited: "{hosts: [a]}",
			keptEdited: `{"values":{"spec.hosts":[{"name":"a","port":80}]}}`,
		},
		"a unit changes": {
			v1: "timeoutSeconds: {type: integer}", v2: "timeoutMinutes: {type: integer}",
			there:  []apisv1alpha1.APIConversionRule{{Field: "spec.timeoutSeconds", Destination: "spec.timeoutMinutes", Transformation: "self / 60"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: "spec.timeoutMinutes", Destination: "spec.timeoutSeconds", Transformation: "self * 60"}},
			object: "{timeoutSeconds: 90}", want: "{timeoutMinutes: 1}", kept: `{"values":{"spec.timeoutSeconds":90}}`,
			edited: "{timeoutMinutes: 2}", wantEdited: "{timeoutSeconds: 120}",
		},
		"a unit changes in place": {
			v1: "memory: {type: integer}", v2: "memory: {type: string}",
			there:  []apisv1alpha1.APIConversionRule{{Field: "spec.memory", Destination: "spec.memory", Transformation: "string(self) + 'Mi'"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: "spec.memory", Destination: "spec.memory", Transformation: "int(self.replace('Mi', ''))"}},
			object: "{memory: 64}", want: "{memory: 64Mi}", edited: "{memory: 65Mi}", wantEdited: "{memory: 65}",
		},
		"an int-or-string becomes a string": {
			v1: "port: {x-kubernetes-int-or-string: true}", v2: "port: {type: string}",
			there:  []apisv1alpha1.APIConversionRule{{Field: "spec.port", Destination: "spec.port", Transformation: "string(self)"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: "spec.port", Destination: "spec.port"}},
			object: "{port: 80}", want: "{port: '80'}", kept: `{"values":{"spec.port":80}}`,
			edited: "{port: http}", wantEdited: "{port: http}",
		},
		"a boolean becomes a mode": {
			v1: "paused: {type: boolean}", v2: "mode: {type: string}",
			there:  []apisv1alpha1.APIConversionRule{{Field: "spec.paused", Destination: "spec.mode", Transformation: "self ? 'Paused' : 'Running'"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: "spec.mode", Destination: "spec.paused", Transformation: "self == 'Paused'"}},
			object: "{paused: true}", want: "{mode: Paused}", edited: "{mode: Draining}", wantEdited: "{paused: false}",
			keptEdited: `{"values":{"spec.mode":"Draining"}}`,
		},
		"a key of a map becomes a field": {
			v1: "limits: {type: object, additionalProperties: {type: string}}", v2: "limits: {type: object, additionalProperties: {type: string}}\ngpu: {type: string}",
			there:  []apisv1alpha1.APIConversionRule{{Field: `spec.limits["example.com/gpu"]`, Destination: "spec.gpu"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: "spec.gpu", Destination: `spec.limits["example.com/gpu"]`}},
			object: "{limits: {cpu: '1', example.com/gpu: '2'}}", want: "{limits: {cpu: '1'}, gpu: '2'}",
			edited: "{limits: {cpu: '3'}}", wantEdited: "{limits: {cpu: '3'}}",
		},
		"a timestamp and a duration": {
			v1: "until: {type: string, format: date-time}\nevery: {type: string, format: duration}\nday: {type: string, format: date}",
			v2: "since: {type: string, format: date-time}\nseconds: {type: integer}\nday: {type: string, format: date}",
			there: []apisv1alpha1.APIConversionRule{{Field: "spec.until", Destination: "spec.since", Transformation: "self - duration('1h')"},
				{Field: "spec.every", Destination: "spec.seconds", Transformation: "self.getSeconds()"},
				{Field: "spec.day", Destination: "spec.day", Transformation: "self + duration('24h')"}},
			back: []apisv1alpha1.APIConversionRule{{Field: "spec.since", Destination: "spec.until", Transformation: "self + duration('1h')"},
				{Field: "spec.seconds", Destination: "spec.every", Transformation: "duration(string(self) + 's')"},
				{Field: "spec.day", Destination: "spec.day", Transformation: "self - duration('24h')"}},
			object: "{until: '2026-01-01T00:30:00Z', every: 5m0s, day: '2026-01-31'}", want: "{since: '2025-12-31T23:30:00Z', seconds: 300, day: '2026-02-01'}",
			edited: "{seconds: 60}", wantEdited: "{every: 1m0s}",
		},
		"what has no schema is dynamic, and stays as it is": {
			v1:     "raw: {type: object, x-kubernetes-preserve-unknown-fields: true}\nname: {type: string}",
			v2:     "raw: {type: object, x-kubernetes-preserve-unknown-fields: true}\nname: {type: string}\nkind: {type: string}",
			there:  []apisv1alpha1.APIConversionRule{{Field: "spec.raw.kind", Destination: "spec.kind", Transformation: "self + '!'"}},
			back:   []apisv1alpha1.APIConversionRule{{Field: "spec.kind", Destination: "spec.raw.kind", Transformation: "self.replace('!', '')"}},
			object: "{raw: {kind: Job, list: [{a: 1}]}, name: x}", want: "{raw: {list: [{a: 1}]}, kind: Job!, name: x}",
			edited: "{raw: {list: []}, kind: Pod!}", wantEdited: "{raw: {kind: Pod, list: []}}",
		},
		"a null stays where the other version has it": {
			v1: "a: {type: string, nullable: true}\nb: {type: string, nullable: true}", v2: "a: {type: string, nullable: true}\nb: {type: string}",
			object: "{a: null, b: null}", want: "{a: null}", kept: `{"values":{"spec.b":null}}`,
			edited: "{a: x, b: z}", wantEdited: "{a: x, b: z}",
		},
		"versions have different things under the same path": {
			v1: "c: {x-kubernetes-int-or-string: true}", v2: "c: {type: object, properties: {a: {type: string}}}\nd: {type: string}",
			object: "{c: 7}", want: "{}", kept: `{"values":{"spec.c":7}}`,
			edited: "{c: {a: x}, d: x}", wantEdited: "{c: 7}", keptEdited: `{"values":{"spec.c.a":"x","spec.d":"x"}}`,
		},
		"items with keys preserve values that the other version does not have": {
			v1:         "containers: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, properties: {name: {type: string}, image: {type: string}, legacy: {type: string}}}}",
			v2:         "pod: {type: object, properties: {containers: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], items: {type: object, properties: {name: {type: string}, image: {type: string}, probe: {type: boolean}}}}}}",
			there:      []apisv1alpha1.APIConversionRule{{Field: "spec.containers", Destination: "spec.pod.containers"}},
			back:       []apisv1alpha1.APIConversionRule{{Field: "spec.pod.containers", Destination: "spec.containers"}},
			object:     "{containers: [{name: a, image: i, legacy: x}, {name: b, legacy: z}, {name: c}]}",
			want:       "{pod: {containers: [{name: a, image: i}, {name: b}, {name: c}]}}",
			kept:       `{"values":{"spec.containers":[{"image":"i","legacy":"x","name":"a"},{"legacy":"z","name":"b"},{"name":"c"}]}}`,
			edited:     "{pod: {containers: [{name: d, probe: true}, {name: c}, {name: a, image: j}]}}",
			wantEdited: "{containers: [{name: d}, {name: c}, {name: a, image: j, legacy: x}]}",
			keptEdited: `{"values":{"spec.pod.containers":[{"name":"d","probe":true},{"name":"c"},{"image":"j","name":"a"}]}}`,
		},
		"equal items preserve values that the other version does not have": {
			v1:     "steps: {type: array, items: {type: object, properties: {run: {type: string}, legacy: {type: string}}}}",
			v2:     "steps: {type: array, items: {type: object, properties: {run: {type: string}}}}",
			object: "{steps: [{run: a, legacy: x}, {run: a, legacy: z}, {run: b, legacy: w}]}", want: "{steps: [{run: a}, {run: a}, {run: b}]}",
			kept:   `{"values":{"spec.steps":[{"legacy":"x","run":"a"},{"legacy":"z","run":"a"},{"legacy":"w","run":"b"}]}}`,
			edited: "{steps: [{run: new}, {run: b}, {run: a}]}", wantEdited: "{steps: [{run: new}, {run: b, legacy: w}, {run: a, legacy: x}]}",
		},
		"one item of a list that does not fit keeps the list out": {
			v1: "ports: {type: array, items: {x-kubernetes-int-or-string: true}}", v2: "ports: {type: array, items: {type: integer}}",
			object: "{ports: [80, http]}", want: "{}", kept: `{"values":{"spec.ports":[80,"http"]}}`,
			edited: "{ports: [81]}", wantEdited: "{ports: [81]}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			converter := compiled(t, between(tc.there, tc.back), tc.v1, tc.v2)
			original := object(t, "v1", tc.object)
			there := convert(t, converter, original, "v2")
			want := object(t, "v2", tc.want)
			if tc.kept != "" {
				annotated(want, "v1", tc.kept)
			}
			if diff := cmp.Diff(want, there); diff != "" {
				t.Errorf("in v2 (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(original, convert(t, converter, there, "v1")); diff != "" {
				t.Errorf("there and back (-want +got):\n%s", diff)
			}
			there.Object["spec"] = object(t, "v2", tc.edited).Object["spec"]
			back := convert(t, converter, there, "v1")
			want = object(t, "v1", tc.wantEdited)
			if tc.keptEdited != "" {
				annotated(want, "v2", tc.keptEdited)
			}
			if diff := cmp.Diff(want, back); diff != "" {
				t.Errorf("edited, in v1 (-want +got):\n%s", diff)
			}
			there.SetAnnotations(nil)
			again := convert(t, converter, back, "v2")
			again.SetAnnotations(nil)
			if diff := cmp.Diff(there, again); diff != "" {
				t.Errorf("edited, there and back (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPreservedValuesAreRestoredOnlyWhereTheyAreValid(t *testing.T) {
	const v1 = "size: {type: integer}\nseconds: {type: integer}\nlegacy: {type: string}\ncolor: {type: string}\nport: {x-kubernetes-int-or-string: true}"
	const v2 = "replicas: {type: integer}\nminutes: {type: integer}\ncolor: {type: string}\nport: {type: integer}\nnext: {type: object, properties: {a: {type: string}}}"
	converter := compiled(t, between(
		[]apisv1alpha1.APIConversionRule{{Field: "spec.size", Destination: "spec.replicas"},
			{Field: "spec.seconds", Destination: "spec.minutes", Transformation: "self / 60"}},
		[]apisv1alpha1.APIConversionRule{{Field: "spec.replicas", Destination: "spec.size"},
			{Field: "spec.minutes", Destination: "spec.seconds", Transformation: "self < 100 ? self * 60 : [1][self]"}},
	), v1, v2)
	for name, tc := range map[string]struct {
		kept, want string
	}{
		"nothing":                           {``, `{size: 1, seconds: 60, color: red, port: 80}`},
		"no JSON":                           {`{`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"other JSON":                        {`[1, null, {"values": {}}]`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"an own field of the version":       {`{"values":{"spec.legacy":"x"}}`, `{size: 1, seconds: 60, color: red, port: 80, legacy: x}`},
		"of the wrong type":                 {`{"values":{"spec.legacy":7}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"null":                              {`{"values":{"spec.legacy":null}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"a precise value":                   {`{"values":{"spec.seconds":99}}`, `{size: 1, seconds: 99, color: red, port: 80}`},
		"an outdated value":                 {`{"values":{"spec.seconds":120}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"a value for which the rules fail":  {`{"values":{"spec.seconds":9223372036854775807}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"a renamed field":                   {`{"values":{"spec.size":5}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"a field that both have":            {`{"values":{"spec.color":"blue"}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"another type of what both have":    {`{"values":{"spec.port":"http"}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"a field of the other version":      {`{"values":{"spec.replicas":5}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"a whole object":                    {`{"values":{"spec":{"size":7}}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"an empty object":                   {`{"values":{"spec":{}}}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"no field":                          {`{"absent":["spec.size","spec.color"]}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"no object":                         {`{"absent":["spec"]}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"metadata":                          {`{"values":{"metadata.name":"x","kind":"Secret","apiVersion":"v1"},"absent":["metadata"]}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"no paths":                          {`{"values":{"":1,".":1,"[":1,"spec.":1,"spec..size":1},"absent":["","spec["]}`, `{size: 1, seconds: 60, color: red, port: 80}`},
		"the good among the bad":            {`{"values":{"spec.legacy":"x","spec.size":5,"metadata.name":"x"}}`, `{size: 1, seconds: 60, color: red, port: 80, legacy: x}`},
		"values of which one is outdated":   {`{"values":{"spec.legacy":"x","spec.seconds":120}}`, `{size: 1, seconds: 60, color: red, port: 80, legacy: x}`},
		"the same field in different words": {`{"values":{"spec.legacy":"x",".spec.legacy":"x","[\"spec\"].legacy":"x"}}`, `{size: 1, seconds: 60, color: red, port: 80, legacy: x}`},
	} {
		t.Run(name, func(t *testing.T) {
			source := annotated(object(t, "v2", "{replicas: 1, minutes: 1, color: red, port: 80}"), "v1", tc.kept)
			if diff := cmp.Diff(object(t, "v1", tc.want), convert(t, converter, source, "v1")); diff != "" {
				t.Errorf("in v1 (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetadataIsTheSameInAllVersions(t *testing.T) {
	converter := compiled(t, between(nil, nil), "a: {type: string}", "b: {type: string}")
	source := object(t, "v1", "{a: x}")
	source.SetFinalizers([]string{"example.io/f"})
	source.SetAnnotations(map[string]string{"mine": "1", Annotation("v1"): "forged", Annotation("v3"): "of another version"})
	there := convert(t, converter, source, "v2")
	want := object(t, "v2", "{}")
	want.SetFinalizers([]string{"example.io/f"})
	want.SetAnnotations(map[string]string{"mine": "1", Annotation("v1"): `{"values":{"spec.a":"x"}}`, Annotation("v3"): "of another version"})
	if diff := cmp.Diff(want, there); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if same := convert(t, converter, source, "v1"); !cmp.Equal(source, same) {
		t.Error("an object was changed by its conversion to its own version")
	}
}

func TestConversionErrorsNameTheObjectAndTheRule(t *testing.T) {
	const list = "{type: array, items: {type: integer}}"
	rules := func(transformation string) []apisv1alpha1.APIConversionRule {
		return []apisv1alpha1.APIConversionRule{{Field: "spec.list", Destination: "spec.made", Transformation: transformation}}
	}
	large := "{list: [" + strings.Repeat("1,", 999) + "1]}"
	for name, tc := range map[string]struct {
		transformation, object string
		timeout                time.Duration
		want                   string
	}{
		"a rule fails":         {"[self[7]]", "{list: [1]}", 0, "index out of bounds: 7"},
		"a result has strings": {"self.map(i, i == 1 ? dyn('one') : dyn(i))", "{list: [1, 2]}", 0, "the schema of the destination does not have"},
		"a rule costs much":    {"self.map(i, self.map(j, self.filter(k, i + j == k).size())).map(l, l.sum())", large, time.Minute, "cost limit exceeded"},
		"time runs out":        {"self", "{list: [1]}", time.Nanosecond, "evaluation takes too long"},
	} {
		t.Run(name, func(t *testing.T) {
			converter, errs := Compile(between(rules(tc.transformation), nil), map[string]*structuralschema.Structural{
				"v1": structural(t, "list: "+list), "v2": structural(t, "made: "+list)}, Options{Timeout: tc.timeout})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			_, err := converter.Convert(context.Background(), object(t, "v1", tc.object), "v2")
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range []string{`converting Widget.example.io "default/w" from v1 to v2: rule spec.list → spec.made`, tc.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
		})
	}
	converter := compiled(t, between(nil, nil), "a: {type: string}", "a: {type: string}")
	if _, err := converter.Convert(context.Background(), object(t, "v1", "{}"), "v3"); err == nil || !strings.Contains(err.Error(), `no conversion from version "v1" to "v3"`) {
		t.Errorf("unknown version: %v", err)
	}
	_, err := converter.Convert(context.Background(), object(t, "v3", "{}"), "v3")
	if err == nil {
		t.Error("an unknown version is converted to itself")
	}
}

func TestValuesTooLargeForAnAnnotationAreAnError(t *testing.T) {
	converter := compiled(t, between(nil, nil), "a: {type: string}", "b: {type: string}")
	_, err := converter.Convert(context.Background(), object(t, "v1", "a: "+strings.Repeat("x", 300<<10)), "v2")
	if err == nil || !strings.Contains(err.Error(), "too large for an annotation") {
		t.Errorf("%v", err)
	}
}

func BenchmarkConvert(b *testing.B) {
	const common = `
replicas: {type: integer}
template: {type: object, properties: {image: {type: string}, args: {type: array, items: {type: string}}, env: {type: object, additionalProperties: {type: string}}}}
`
	converter := compiled(b, between(
		[]apisv1alpha1.APIConversionRule{{Field: "spec.host", Destination: "spec.server.host"},
			{Field: "spec.seconds", Destination: "spec.minutes", Transformation: "self / 60"}},
		[]apisv1alpha1.APIConversionRule{{Field: "spec.server.host", Destination: "spec.host"},
			{Field: "spec.minutes", Destination: "spec.seconds", Transformation: "self * 60"}},
	), common+"host: {type: string}\nseconds: {type: integer}\nlegacy: {type: string}",
		common+"server: {type: object, properties: {host: {type: string}}}\nminutes: {type: integer}\n")
	const spec = `
replicas: 3
template: {image: "registry.example.io/team/app:v1.2.3", args: [--verbose, --port=8080], env: {A: "1", B: "2", C: "3", D: "4"}}
host: example.io
seconds: 90
legacy: x
`
	source := object(b, "v1", spec)
	there := convert(b, converter, source, "v2")
	b.Run("there", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			convertOnce(b, converter, source, "v2")
		}
	})
	b.Run("back", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			convertOnce(b, converter, there, "v1")
		}
	})
}

func convertOnce(b *testing.B, converter *Converter, obj *unstructured.Unstructured, version string) {
	if _, err := converter.Convert(context.Background(), obj, version); err != nil {
		b.Fatal(err)
	}
}
