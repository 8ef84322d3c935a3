package server

import (
	"testing"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// Upstream streams lists when etcd offers that, and an external etcd of 3.7 does. Nothing of the storage would see them.
func TestListsDoNotUseStreamsOfEtcd(t *testing.T) {
	if err := utilfeature.DefaultMutableFeatureGate.Set("EtcdRangeStream=true"); err != nil {
		t.Fatal(err)
	}
	if err := fixFeatures(); err != nil {
		t.Fatal(err)
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.EtcdRangeStream) {
		t.Error("lists are streams of etcd")
	}
}
