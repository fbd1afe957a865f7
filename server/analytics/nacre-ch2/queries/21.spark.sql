SELECT su_name, COUNT(*) AS numwait FROM nation, supplier, stock, lines l
WHERE o_w_id = s_w_id AND ol_i_id = s_i_id AND (s_w_id * s_i_id) % 10000 = su_suppkey AND su_nationkey = n_nationkey
  AND n_name = 'Peru'
  AND ol_delivery_d > date_format(to_timestamp(o_entry_d) + INTERVAL 150 DAYS, 'yyyy-MM-dd HH:mm:ss')
  AND o_entry_d BETWEEN '2017-12-01 00:00:00' AND '2017-12-31 00:00:00'
  AND NOT EXISTS (SELECT 1 FROM lines later WHERE later.o_id = l.o_id AND later.o_d_id = l.o_d_id
    AND later.o_w_id = l.o_w_id AND later.ol_delivery_d > l.ol_delivery_d)
GROUP BY su_name ORDER BY numwait DESC, su_name LIMIT 100
