// Package faults tests how clients and operators experience faults of the machine and of etcd.
package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kcplane/kcp/test/e2e/kcptest"
)

// stopTimeout is much longer than a stop takes, and shorter than the minute for which a server would wait for a watch.
const stopTimeout = 30 * time.Second

// grant gives a user or a service account the role cluster-admin in a cluster.
func grant(t *testing.T, kube kubernetes.Interface, name string, subject rbacv1.Subject) {
	t.Helper()
	_, err := kube.RbacV1().ClusterRoleBindings().Create(kcptest.Context(t), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// robot returns a service account with the role cluster-admin in a cluster.
func robot(t *testing.T, kube kubernetes.Interface) kcptest.User {
	t.Helper()
	ctx, accounts := kcptest.Context(t), kube.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	grant(t, kube, "robot", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "robot"})
	token, err := accounts.CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return kcptest.User{Name: "robot", Token: token.Status.Token}
}

func TestStartingServerAnswersCorrectlyAndStopDoesNotWaitForWatches(t *testing.T) {
	dir := t.TempDir()
	server := kcptest.StartIn(t, dir)
	team := server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("team", "", ""))
	kube := team.Kube(t, kcptest.Masters)
	grant(t, kube, "alice", rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: kcptest.Alice.Name})
	account := robot(t, kube)
	preserve := true
	team.Define(t, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.faults.test"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "faults.test", Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &preserve}},
			}},
		},
	})
	watch, err := kube.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	began := time.Now()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > stopTimeout {
		t.Errorf("stopping the server with an open watch took %s", took)
	} else {
		t.Logf("stopping the server with an open watch took %s", took)
	}
	kcptest.RestartIn(t, dir, []kcptest.Probe{
		{User: kcptest.Masters, Path: "/clusters/root:team/api/v1/namespaces/default"},
		{User: kcptest.Alice, Path: "/clusters/root:team/api/v1/namespaces/default/configmaps"},
		{User: account, Path: "/clusters/root:team/api/v1/namespaces/default/secrets"},
		{User: kcptest.Alice, Path: "/clusters/root:team/apis/faults.test/v1/widgets"},
		{User: kcptest.Alice, Path: "/clusters/root:team/apis/faults.test/v1"},
	})
}

func TestFullEtcdServesReadsAndRecovers(t *testing.T) {
	dir, quota := t.TempDir(), "--embedded-etcd-quota-backend-bytes=25165824"
	server := kcptest.StartIn(t, dir, quota)
	team := server.Named("root").CreateWorkspace(t, kcptest.Masters, kcptest.Workspace("team", "", ""))
	maps := team.Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
	random := func() string {
		text := make([]byte, 900<<10)
		for i := range text {
			text[i] = byte('a' + rand.IntN(26))
		}
		return string(text)
	}
	create := func(name string) error {
		_, err := maps.Create(kcptest.Context(t), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": random()}}, metav1.CreateOptions{})
		return err
	}
	isFull := func(err error) bool {
		return apierrors.ReasonForError(err) == "InsufficientStorage" && strings.Contains(err.Error(), "the storage of the server is full (the database is full: ")
	}
	var names []string
	fill := func() error {
		for {
			name := fmt.Sprintf("large-%d", len(names))
			if err := create(name); isFull(err) {
				return nil
			} else if err != nil {
				return err
			}
			names = append(names, name)
		}
	}
	// Pages that are freed shortly after, and compaction, may make room for a few more objects.
	check := func() {
		t.Helper()
		kcptest.Eventually(t, "system:masters get an error that the storage is full", func(context.Context) error {
			if err := fill(); err != nil {
				return err
			}
			code, body := server.Get(t, kcptest.Masters, "/readyz")
			if code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd-space failed: the database is full") {
				return fmt.Errorf("%d %s", code, body)
			}
			if code, body = server.Get(t, kcptest.Stranger, "/readyz"); code != http.StatusInternalServerError || !strings.Contains(body, "[-]etcd-space failed: reason withheld") {
				return fmt.Errorf("a user without permissions: got %d %s", code, body)
			}
			if _, body := server.Get(t, kcptest.Masters, "/metrics"); !strings.Contains(body, "\nkcp_storage_full 1\n") {
				return errors.New("the metric does not report it")
			}
			return nil
		})
		if _, err := maps.Get(kcptest.Context(t), names[0], metav1.GetOptions{}); err != nil {
			t.Errorf("reading: %v", err)
		}
	}
	check()
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	server, err := kcptest.Begin(dir, quota)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	maps = server.Named("root:team").Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
	kcptest.Eventually(t, "the server serves", func(ctx context.Context) error {
		_, err := maps.List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
	check()
	// Deletion requires writes: of an object with a finalizer, and of all objects in a workspace.
	kept, err := maps.Get(kcptest.Context(t), names[0], metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	kept.Data = nil
	if _, err := maps.Update(kcptest.Context(t), kept, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a write that makes an object smaller: %v", err)
	}
	workspaces := server.Named("root").Dynamic(t, kcptest.Masters).Resource(kcptest.Workspaces)
	if err := workspaces.Delete(kcptest.Context(t), "team", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	kcptest.Eventually(t, "the workspace is deleted", func(ctx context.Context) error {
		_, err := workspaces.Get(ctx, "team", metav1.GetOptions{})
		return kcptest.Gone(err)
	})
	if err := server.AwaitReady(); err != nil {
		t.Fatal(err)
	}
	maps = server.Named("root").Kube(t, kcptest.Masters).CoreV1().ConfigMaps("default")
	kcptest.Eventually(t, "writes resume", func(context.Context) error { return create("large") })
}

func TestCorruptEtcdFileIsReportedInOneLine(t *testing.T) {
	dir := t.TempDir()
	if err := kcptest.StartIn(t, dir).Stop(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "kcp", "etcd-server", "data", "member", "wal", "*.wal"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("reading the log: %v", err)
	}
	file, err := os.OpenFile(slices.Max(logs), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte(strings.Repeat("damaged", 1000)), 4096); err != nil {
		t.Fatal(err)
	}
	file.Close()
	server, err := kcptest.Begin(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Kill)
	success, log := server.AwaitEnd(t)
	lines := strings.Split(log, "\n")
	if last := lines[len(lines)-1]; success || !strings.Contains(last, file.Name()+": the file is damaged") || !strings.Contains(last, "restore a copy") {
		t.Errorf("the server succeeded: %t, the last line of its log is %s", success, last)
	}
	if strings.Contains(log, "goroutine ") {
		t.Errorf("the log contains a goroutine dump: %s", log)
	}
}
