// Package kcptest runs a real server, kubectl and Helm for tests, because users depend on the behavior of the programs, not on that of
// the packages in them.
//
// A test package starts one server in TestMain, and each test creates its own logical clusters:
//
//	var server *kcptest.Server
//
//	func TestMain(m *testing.M) { kcptest.Main(m, &server) }
//
//	func TestSomething(t *testing.T) {
//		cluster := server.Cluster(t)
//		cluster.Kubectl(t, "create", "namespace", "demo")
//	}
package kcptest
