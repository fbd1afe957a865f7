SELECT s_i_id, SUM(s_order_cnt) AS ordercount FROM nation, supplier, stock
WHERE (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey AND n_name = 'Germany'
GROUP BY s_i_id
HAVING SUM(s_order_cnt) > (SELECT SUM(s_order_cnt) * 0.00005 FROM nation, supplier, stock
  WHERE (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey AND n_name = 'Germany')
ORDER BY ordercount DESC
