package etcdcluster

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kcplane/kcp/api/operator/v1alpha1"
	"github.com/kcplane/kcp/operator/retention"
)

// What the status of an EtcdBackup tells is copied into specs of clusters of other names, in other namespaces.
func TestTheKeyOfASnapshotIsTakenAsItIs(t *testing.T) {
	store := v1alpha1.EtcdStoreSpec{S3: &v1alpha1.EtcdS3Store{Endpoint: "https://s3", Bucket: "b", Prefix: "west"}}
	for _, key := range []string{retention.Key("team/x", time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC), 42), "x/20310506T070809Z-42.db"} {
		cluster := &v1alpha1.EtcdCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "y"},
			Spec: v1alpha1.EtcdClusterSpec{Restore: &v1alpha1.EtcdRestoreSpec{Key: key, Store: &store}}}
		args := restoreJob(cluster, "etcd", "https://y-0", "token").Spec.Template.Spec.Containers[0].Args
		for _, arg := range []string{"--key=" + key, "--s3-prefix=west"} {
			if !slices.Contains(args, arg) {
				t.Errorf("%s is not among %v", arg, args)
			}
		}
	}
}
