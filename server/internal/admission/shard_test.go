package admission

import (
	"reflect"
	"testing"
)

func TestEmptyURLsOfAShardAreItsBaseURL(t *testing.T) {
	spec := func(base, external, views string) map[string]any {
		all := map[string]any{}
		for key, value := range map[string]string{"baseURL": base, "externalURL": external, "virtualWorkspaceURL": views} {
			if value != "" {
				all[key] = value
			}
		}
		return all
	}
	for name, test := range map[string]struct {
		write
		want map[string]any
	}{
		"both URLs are set":                      {write{object: `spec: {baseURL: b}`}, spec("b", "b", "b")},
		"a URL of the client is kept":            {write{object: `spec: {baseURL: b, externalURL: e}`}, spec("b", "e", "b")},
		"all URLs of the client are kept":        {write{object: `spec: {baseURL: b, externalURL: e, virtualWorkspaceURL: v}`}, spec("b", "e", "v")},
		"nothing is set without a base URL":      {write{object: `spec: {externalURL: e}`}, spec("", "e", "")},
		"an update sets them too":                {write{object: `spec: {baseURL: c}`, before: `spec: {baseURL: b}`}, spec("c", "c", "c")},
		"an update of the status is not changed": {write{object: `spec: {baseURL: b}`, before: `{}`, subresource: "status"}, spec("b", "", "")},
		"another kind of the group is unchanged": {write{group: "tenancy.kcp.io", object: `spec: {baseURL: b}`}, spec("b", "", "")},
	} {
		t.Run(name, func(t *testing.T) {
			if test.group == "" {
				test.group = "core.kcp.io"
			}
			a := test.attributes(t, "Shard")
			if err := (shardDefaults{}).Admit(in(t, "root"), a, nil); err != nil {
				t.Fatal(err)
			}
			content := contentOf(t, a)
			if got := content["spec"]; !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
