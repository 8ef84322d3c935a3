package durability

import (
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/kcplane/kcp/test/e2e/database"
)

// compareWithEtcd opens the database of a stopped server, and compares its objects with the lists of each cluster.
func compareWithEtcd(t *testing.T, root string, listed map[string][]string) {
	t.Helper()
	client := database.Open(t, root)
	for name, want := range listed {
		var stored []string
		for resource, prefix := range map[string]string{
			"configmaps": "/registry/core/configmaps/", "widgets": "/registry/durability.test/widgets/customresources/",
		} {
			found, err := client.Get(t.Context(), prefix+name+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range found.Kvs {
				if key := string(kv.Key); strings.HasPrefix(key, prefix+name+"/"+namespace+"/") {
					stored = append(stored, resource+"/"+key[strings.LastIndex(key, "/")+1:])
				}
			}
		}
		slices.Sort(stored)
		if !slices.Equal(stored, want) {
			t.Errorf("%s: etcd has %d objects, the server listed %d", name, len(stored), len(want))
		}
	}
}
